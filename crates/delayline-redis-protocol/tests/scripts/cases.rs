//! Damaged keys, half-executed scripts, relays, hints: what scripts do on one server.

pub(crate) mod agreement;
pub(crate) mod bells;
pub(crate) mod counting;
pub(crate) mod followers;
pub(crate) mod golden;
pub(crate) mod groups;
pub(crate) mod hostile;
mod recorded;
pub(crate) mod relays;
pub(crate) mod remembering;
pub(crate) mod repair;
pub(crate) mod revoked;
pub(crate) mod throttling;
pub(crate) mod torn;
pub(crate) mod upgrades;

use delayline_core::{
    At, Backend, Check, Destination, Error, ErrorKind, Extend, FinishedIds, HandOff, Known, Lease,
    List, MessageId, NewMessage, NewResult, Op, Outcome, Position, QueueName, Rate, Redrive, Reply,
    Reschedule, Schedule, SetLimits, Settlement, Status, Timestamp, Update, UpdateContent,
    UpdateDue, UpdateToken,
};
use delayline_driver_testkit::Connect;
use delayline_driver_testkit::queue::*;
use delayline_redis_protocol::{ScriptBackend, Transport};
use delayline_test_server::{Reply as Raw, Server};

/// Every case, as a test or in a list of names and functions.
macro_rules! script_cases {
    ($what:ident $connect:ty) => {
        $crate::cases::script_cases! { @$what $connect;
            relays: each_message_becomes_one_element_of_a_list;
            relays: each_message_becomes_one_entry_of_a_stream;
            relays: a_full_server_refuses_before_anything_is_done;
            relays: destinations_of_another_type_are_refused_before_anything_is_done;
            relays: a_denied_destination_is_named_before_anything_is_done;
            relays: a_group_that_keeps_up_lets_more_through;
            relays: a_backlog_that_nobody_knows_is_at_most_the_stream;
            relays: a_backlog_that_somebody_has_misstated_is_at_most_the_stream;
            relays: a_stream_without_numbers_left_refuses_before_anything_is_done;
            relays: damaged_messages_are_buried_and_not_relayed;
            relays: more_headers_than_a_message_has_are_buried_and_not_relayed;
            relays: a_relay_that_is_held_back_does_not_ring;
            revoked: a_right_that_is_taken_away_leaves_no_half_of_an_operation;
            agreement: all_scripts_agree_which_records_are_readable;
            agreement: all_scripts_agree_which_details_are_readable;
            agreement: all_scripts_agree_which_contents_are_readable;
            bells: what_comes_sooner_than_sleepers_know_rings;
            bells: a_claim_that_is_full_leaves_the_rest_to_others;
            bells: what_is_given_back_or_moved_rings;
            bells: what_is_updated_or_follows_rings;
            bells: a_paused_queue_is_silent;
            bells: what_limits_hold_back_rings_when_it_may_be_delivered;
            bells: looks_that_find_nothing_write_seldom;
            hostile: a_vanished_record_becomes_a_dead_letter_and_harms_nobody;
            hostile: junk_in_the_indexes_harms_nobody;
            hostile: unreadable_details_become_a_dead_letter;
            hostile: a_damaged_byte_harms_only_its_message;
            hostile: a_damaged_journal_bounds_its_own_work;
            hostile: damaged_leases_are_taken_back_a_few_megabytes_at_a_time;
            hostile: a_lost_control_record_stops_nothing;
            hostile: impossible_instants_in_the_indexes_harm_nobody;
            hostile: another_entry_of_an_id_moves_nothing;
            hostile: where_a_message_is_says_the_index_alone;
            hostile: an_audit_of_junk_comes_to_an_end;
            hostile: large_contents_come_and_go;
            hostile: a_large_message_is_buried_with_its_content;
            hostile: claims_return_the_microseconds_of_the_servers_clock;
            hostile: finished_messages_leave_no_residue;
            counting: damaged_totals_stop_nothing;
            counting: a_damaged_history_tells_only_what_it_knows;
            counting: without_its_history_a_queue_goes_back_in_time;
            counting: totals_outlive_the_control_record;
            remembering: a_place_of_a_finished_message_goes_without_a_word;
            remembering: a_torn_change_of_generations_forgets_nothing;
            remembering: a_repair_limits_the_life_of_what_is_remembered;
            remembering: what_is_remembered_goes_by_itself;
            remembering: results_go_by_themselves;
            remembering: a_damaged_count_of_result_bytes_stops_nothing;
            remembering: as_many_results_are_kept_as_promised;
            throttling: windows_go_by_themselves;
            throttling: as_many_ids_are_throttled_as_promised;
            throttling: an_ended_window_of_the_same_id_makes_room_once;
            throttling: windows_without_an_end_throttle_nobody;
            throttling: a_torn_send_is_not_throttled;
            remembering: as_many_finished_ids_are_remembered_as_promised;
            repair: a_queue_without_a_fault_is_not_changed;
            repair: a_repair_finds_the_levels_that_are_used;
            repair: all_entries_with_impossible_scores_are_mended_in_one_pass;
            groups: lost_turns_come_back;
            groups: lost_limits_hold_up_no_group;
            groups: groups_that_are_not_known_are_found;
            groups: strangers_among_groups_harm_nobody;
            groups: damaged_turns_and_slots_are_mended;
            repair: a_repair_ends_an_open_lease_among_the_dead_letters;
            repair: each_kind_of_damage_is_mended;
            repair: whatever_is_damaged_the_rest_is_as_it_was;
            repair: many_orphans_are_found_page_by_page;
            repair: what_is_left_without_a_record_harms_no_later_message;
            repair: a_repair_keeps_the_first_and_the_last_instant;
            repair: a_reused_id_is_not_taken_for_what_has_finished;
            repair: many_details_without_a_record_are_found_page_by_page;
            followers: a_follower_outlives_its_message;
            followers: a_follower_of_a_message_that_nobody_holds_is_found;
            followers: a_follower_that_has_taken_its_place_is_found;
            followers: a_follower_is_due_by_the_last_instant;
            followers: a_follower_of_an_unknown_priority_is_none;
            followers: a_small_message_in_place_of_a_large_one_leaves_no_content;
            followers: junk_in_place_of_updates_harms_nobody;
            golden: the_golden_data_is_what_this_layout_writes;
            golden: every_operation_reads_the_golden_data;
            golden: every_operation_reads_the_converted_golden_data;
            upgrades: a_torn_conversion_can_be_repeated;
            torn: every_operation_can_be_torn_anywhere;
            torn: after_a_torn_end_messages_can_be_sent_again;
            torn: a_torn_send_can_be_repeated;
            torn: a_torn_file_leaves_the_first_commands_of_an_operation;
            torn: a_torn_first_update_is_not_lost;
            torn: a_torn_end_of_a_lease_brings_its_follower_once;
        }
    };
    (@list $connect:ty; $($module:ident: $case:ident;)+) => {
        [$((
            concat!(stringify!($module), "::", stringify!($case)),
            (|| delayline_driver_testkit::run($crate::cases::$module::$case::<$connect>())) as fn(),
        )),+]
    };
    (@tests $connect:ty; $($module:ident: $case:ident;)+) => {$(
        #[test]
        fn $case() {
            delayline_driver_testkit::run($crate::cases::$module::$case::<$connect>());
        }
    )+};
}
pub(crate) use script_cases;
