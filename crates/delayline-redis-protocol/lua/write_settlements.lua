-- For turn: writes what the settlements have changed, before the claim, which goes on after this as after `reclaim`. It
-- may lease what was given back, and neither takes back nor repeats a lease that was ended.
--@inline
local function write_settlements()
  look_at_all()
  look_at_minute()
  --@ask all
  count_finished()
  begin_writes()
  write()
  new_finished, new_details, new_places, ended, gone = {}, {}, {}, {}, {}
  new_records, new_updates, removed, replaced_contents = {}, {}, {}, {}
  changed = true
end
