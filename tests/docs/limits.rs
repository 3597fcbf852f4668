//! Every limit that is counted has its row in the documents, and a test that meets it through a real socket.

use std::collections::BTreeSet;

use super::named;
use super::pages::{literals_behind, page, words};

/// By its name in the metric: the test that meets it, sees what is said and that it is counted, and goes on.
const SHOWN: [(&str, &str); 36] = [
    ("action", "host bounds::an_action_is_bounded_as_a_whole_beside_the_files_that_it_brings"),
    (
        "agent_message",
        "host acp::stops::a_message_that_is_too_long_is_a_fault_and_a_hundred_megabytes_of_stderr_are_none",
    ),
    ("attachments", "host bounds::a_message_has_so_many_attachments_and_no_more"),
    ("busy", "host bounds::a_chat_that_waits_for_the_disk_is_busy_and_says_so"),
    ("chats", "host chats::a_session_holds_so_many_chats_and_no_more"),
    ("client_tool_time", "host client_tools::a_call_that_takes_too_long_fails_and_its_client_comes_too_late"),
    ("completions", "host completions::a_huge_tree_is_answered_in_time_with_fifty_at_most"),
    ("connections", "host bounds::connections_over_the_limit_are_refused_and_a_seat_that_is_left_is_taken_again"),
    ("connections_of_one", "host over_http::live_streams_and_sockets_of_one_person_share_their_seats"),
    ("fetched_attachment", "host fetched::a_file_of_thirty_two_mebibytes_is_fetched_and_one_byte_more_is_not"),
    ("handshake_time", "host bounds::a_client_without_a_handshake_is_closed_and_others_stay"),
    (
        "limit_resumes",
        "host limits::an_overload_without_a_time_is_tried_after_1_5_and_15_minutes_and_then_waits_for_a_person",
    ),
    ("message", "host bounds::a_message_over_the_limit_ends_its_own_connection_and_the_client_comes_back"),
    ("message_sent", "host resources::what_is_larger_than_a_message_is_refused_and_the_socket_stays"),
    ("message_text", "host turns::a_text_may_be_as_long_as_the_limit_and_no_longer"),
    ("nesting", "host bounds::what_nests_too_deep_is_refused_with_its_id_and_the_limit_can_be_set"),
    ("parts", "host turns::a_turn_that_holds_too_many_parts_ends_in_an_error_that_says_so"),
    ("queued_messages", "host queue::so_many_messages_wait_and_no_more"),
    ("received", "host bounds::a_client_that_sends_faster_than_the_disk_takes_is_read_later_and_loses_nothing"),
    ("replay", "host cases::coming_back_resumes_from_a_number_and_what_cannot_be_resumed_is_said"),
    ("request_body", "host over_http::a_body_that_is_too_long_is_refused"),
    ("request_body_time", "host over_http::a_body_that_comes_slowly_is_refused_in_time"),
    ("request_head_time", "host over_http::an_upgrade_that_comes_slowly_is_cut_off_and_others_are_served"),
    ("requests_in_flight", "host slow::requests_beyond_256_in_flight_are_refused_and_those_before_are_answered"),
    ("sessions", "host sessions::a_session_that_cannot_be_made_is_refused_by_its_own_code"),
    ("silence", "host bounds::a_socket_that_answers_no_ping_is_closed_and_its_client_comes_back"),
    ("subscriptions", "host bounds::a_connection_has_so_many_subscriptions_and_those_before_go_on"),
    ("tokens", "host people::somebody_has_so_many_good_tokens_and_no_more"),
    ("title", "host bounds::a_title_is_bounded"),
    (
        "turn_processes",
        "host taken_up::at_most_two_processes_work_on_a_turn_and_a_person_who_resumes_it_begins_a_new_count",
    ),
    ("unsent_bytes", "host slow::a_peer_that_does_not_read_is_closed_while_others_get_everything_and_misses_nothing"),
    ("visual", "host visuals::a_page_of_16_mib_is_stored_and_one_byte_more_is_not"),
    ("visuals", "host visuals::a_chat_holds_so_many_visuals_and_no_more"),
    ("watch_changes", "host watches::a_flood_of_changes_is_told_as_one_of_the_whole"),
    ("watches", "host watches::watches_are_limited_and_refused_outside_of_the_allowed_directories"),
    ("worker_depth", "host workers::the_depth_and_the_number_of_workers_are_bounded"),
];

/// A limit that shares its test with another one, or that no test can meet at will.
const BESIDE: [(&str, &str); 2] = [
    ("workers", "met with `worker_depth`"),
    ("handshake_rounds", "its channels would have to change between each of eight readings"),
];

fn counted() -> BTreeSet<String> {
    let before = [r#""limit" =>"#, "limit("];
    before.iter().flat_map(|before| literals_behind(&["src"], before)).collect()
}

#[test]
fn every_limit_that_is_counted_has_a_row_and_a_test() {
    let (real, rows) = (counted(), page("docs/operating.md").table("limit"));
    let documented: BTreeSet<String> = rows.iter().flat_map(|row| words(&row[0])).collect();
    assert_eq!(documented, real, "the table of limits in docs/operating.md");
    let shown: BTreeSet<String> = SHOWN.iter().chain(&BESIDE).map(|(limit, _)| (*limit).to_owned()).collect();
    assert_eq!(shown, real, "the tests of limits");
    let there = named::tests();
    let lost: Vec<_> = SHOWN.iter().filter(|(_, test)| !there.contains(*test)).collect();
    assert!(lost.is_empty(), "tests that are not there: {lost:#?}");
}

#[test]
fn every_limit_is_set_by_a_key() {
    let operating = page("docs/operating.md");
    let keys: BTreeSet<String> = operating.table("key").iter().flat_map(|row| words(&row[0])).collect();
    for row in operating.table("limit") {
        for key in words(&row[1]) {
            assert!(keys.contains(&key), "{}: {key} is no key", row[0]);
        }
    }
}
