-- For the scripts that take saves: what handlers keep with their messages, as `saved` in layout.rs
-- describes it.

-- Entry::save. Reads d, the details of a leased message, and save, a `save` (layout.rs) of its
-- holder; sets d.saved.
--@inline
local function keep_save()
  local old, epoch, parts = sub(d.saved, SAVED_SAVE_FROM), sub(d.lease, LEASE_EPOCH), byte(save, SAVE_PARTS)
  local is_kept = #old >= SAVE_BYTES and #old <= MOST_SAVE
  local is_newer = not is_kept or sub(d.saved, SAVED_EPOCH) ~= epoch
    or struct.unpack(U64, old, SAVE_NUMBER_FROM) < struct.unpack(U64, save, SAVE_NUMBER_FROM)
  if is_newer and (not is_kept or parts == PART_PROGRESS + PART_CHECKPOINT) then
    d.saved = epoch .. save
  elseif is_newer then
    -- A part that is not in this save stays.
    local text_to = SAVE_BYTES + struct.unpack(U16, save, SAVE_TEXT_LENGTH_FROM)
    local old_text_to = SAVE_BYTES + struct.unpack(U16, old, SAVE_TEXT_LENGTH_FROM)
    d.saved = epoch .. sub(save, SAVE_NUMBER) .. string.char(bit.bor(parts, byte(old, SAVE_PARTS)))
      .. (parts % 2 == PART_PROGRESS and sub(save, SAVE_PROGRESS_FROM, text_to)
        or sub(old, SAVE_PROGRESS_FROM, old_text_to))
      .. (parts >= PART_CHECKPOINT and sub(save, text_to + 1) or sub(old, old_text_to + 1))
  end
end
