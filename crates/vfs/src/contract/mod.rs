//! What every backend must do, as tests: one suite for the file system in memory, a local directory, and whatever
//! comes later. Where two backends could differ, a case here says which is right, and by which rule.
//!
//! A backend's test file names a function that makes a [`Fixture`] and gets one `#[test]` a case:
//!
//! ```text
//! vfs::contract_tests!(as_root, || Fixture::ready(Arc::new(MemFs::new(&options()))));
//! ```
//!
//! Each case gets a fixture of its own and works in a directory that its caller owns. A case that needs what the
//! fixture's [`Capabilities`] lack prints `skipped:` and why. [`random`] holds the random operations; their seed is
//! taken from `ENFYS_SEED` where set.
//!
//! This is test code: it panics where a backend is wrong.

mod acl;
mod attributes;
mod change;
mod copy;
mod create;
mod data;
mod handles;
mod kinds;
mod link;
mod lookup;
mod names;
mod ownership;
mod permission;
mod pins;
pub mod random;
mod readdir;
mod remove;
mod rename;
mod restart;
mod space;
mod subject;
mod times;
mod umask;
mod watch_entries;
mod xattr;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub use subject::{Caller, Listing, Subject};

use crate::{Backend, Credentials};

/// Drives a future to its end, wherever the backend needs to be polled.
pub type Drive = Box<dyn for<'a> Fn(Pin<&'a mut (dyn Future<Output = ()> + 'a)>)>;

/// What a backend under test can do.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Acts as whoever the credentials name, the superuser included; otherwise everything is done as
    /// [`Fixture::caller`], and cases with several callers are skipped.
    pub identities: bool,
    /// The superuser may create device files.
    pub devices: bool,
    /// Times come from [`crate::Context::now`], not from a clock of the backend's own.
    pub context_clock: bool,
    /// A change attribute that was told stands until the next change. Otherwise (where it is made of a coarse clock) it
    /// may move once more when the clock's tick is over, since another change may have hidden in the same tick.
    pub steady_change: bool,
    /// [`Backend::seek`], [`Backend::allocate`] and [`Backend::deallocate`] work, holes included.
    pub holes: bool,
}

impl Capabilities {
    /// All of them.
    pub const ALL: Self =
        Self { identities: true, devices: true, context_clock: true, steady_change: true, holes: true };
}

/// A fresh, empty backend to test.
pub struct Fixture {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// As whom ordinary cases run. Without identities the root directory must be this caller's to write.
    pub caller: Credentials,
    /// What it can do.
    pub capabilities: Capabilities,
    /// How to wait for it.
    pub drive: Drive,
    /// Makes another backend over the same storage, as after a restart; `None` where nothing outlives the backend.
    pub restart: Option<Box<dyn Fn() -> Arc<dyn Backend>>>,
    /// What must live as long as the backend: a temporary directory, a runtime.
    pub keep: Box<dyn Any>,
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture")
            .field("backend", &self.backend)
            .field("caller", &self.caller)
            .finish_non_exhaustive()
    }
}

impl Fixture {
    /// A backend that can do everything and answers at once; cases run as the superuser.
    #[must_use]
    pub fn ready(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            caller: Credentials::root(),
            capabilities: Capabilities::ALL,
            drive: Box::new(poll_once),
            restart: None,
            keep: Box::new(()),
        }
    }

    /// The same, cases run as `caller`.
    #[must_use]
    pub fn with_caller(self, caller: Credentials) -> Self {
        Self { caller, ..self }
    }
}

/// # Panics
/// Where the future has to wait.
fn poll_once(future: Pin<&mut (dyn Future<Output = ()> + '_)>) {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(()) => {}
        Poll::Pending => panic!("this backend was said to answer at once"),
    }
}

/// A named test of the contract.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What it is about.
    pub topic: &'static str,
    /// What it shows.
    pub name: &'static str,
    /// The test.
    pub run: fn(&Subject),
}

/// Runs one case by name, for [`contract_tests!`](crate::contract_tests).
///
/// # Panics
/// Where the backend is wrong, or there is no such case.
pub fn run_case(topic: &str, name: &str, fixture: Fixture) {
    let case = CASES.iter().find(|case| (case.topic, case.name) == (topic, name));
    let case = case.unwrap_or_else(|| panic!("no case {topic}::{name}"));
    (case.run)(&Subject::new(fixture));
}

/// Lists the cases once: for [`CASES`], and for the macro that makes tests of them.
macro_rules! cases {
    ($d:tt $($topic:ident { $($name:ident)+ })+) => {
        /// All cases.
        pub const CASES: &[Case] = &[$($(
            Case { topic: stringify!($topic), name: stringify!($name), run: $topic::$name },
        )+)+];

        /// Makes a module of tests, one a case, that run on what `$make` returns, a [`Fixture`](crate::contract::Fixture).
        #[macro_export]
        macro_rules! contract_tests {
            ($d suite:ident, $d make:expr) => {
                mod $d suite {
                    #[allow(unused_imports)]
                    use super::*;
                    $(mod $topic {
                        #[allow(unused_imports)]
                        use super::*;
                        $(#[test]
                        fn $name() {
                            $crate::contract::run_case(stringify!($topic), stringify!($name), ($d make)());
                        })+
                    })+
                }
            };
        }
    };
}

cases! { $
    attributes {
        a_new_object_has_what_was_asked_for
        the_root_is_a_directory
        properties_and_identity_are_plausible
        setting_nothing_changes_nothing
        mode_is_set_and_kept
        a_symbolic_link_takes_no_mode
        a_size_cuts_and_extends_with_zeros
        only_regular_files_have_a_size_to_set
        a_size_beyond_the_limit_is_refused
        a_guard_lets_only_the_change_seen_pass
        a_refused_change_changes_nothing
    }
    times {
        times_are_kept_to_the_granularity
        now_is_later_than_the_past
        changes_move_the_right_times
        context_time_is_used_exactly
        a_bad_time_is_refused
        what_was_kept_is_set_as_it_was
    }
    change {
        every_change_of_a_file_moves_its_change_attribute
        every_change_of_a_directory_moves_its_change_attribute
        reading_leaves_the_change_attribute
        it_moves_though_the_clock_stands
        a_thousand_writes_are_a_thousand_changes
        two_hundred_removals_are_two_hundred_changes
        before_and_after_join_up
    }
    watch_entries {
        every_change_that_a_listing_tells_ends_the_watch
        what_a_listing_does_not_tell_leaves_it
        only_a_directory_has_entries_to_watch
    }
    names {
        bad_names_are_refused_by_every_operation
        the_longest_name_is_allowed_and_one_more_byte_is_not
        names_are_raw_bytes
        case_matters_where_it_is_said_to
    }
    lookup {
        finds_every_kind
        says_what_is_missing
        only_directories_have_entries
        links_are_not_followed
        parent_leads_up_to_the_root
        readlink_is_for_links_alone
    }
    create {
        unchecked_takes_what_is_there
        unchecked_cuts_to_the_size_given
        guarded_refuses_what_is_there
        exclusive_recognises_its_repetition
        exclusive_refuses_another_verifier_and_other_files
        a_taken_name_is_refused_for_every_kind
        defaults_are_private
        attributes_given_are_set_at_once
        devices_keep_their_numbers
        in_a_file_nothing_is_created
        a_symlink_keeps_its_text_byte_for_byte
        set_group_id_is_inherited
    }
    remove {
        a_file_goes_with_its_last_name
        kinds_are_told_apart
        a_full_directory_stays
        what_is_missing_cannot_be_removed
        a_removed_name_is_free_again
    }
    rename {
        moves_within_and_across_directories
        replaces_a_file
        replaces_an_empty_directory_only
        kinds_do_not_replace_each_other
        onto_itself_does_nothing
        two_names_of_one_file_do_nothing
        a_directory_does_not_go_into_itself
        a_directory_does_not_replace_its_ancestor
        keeps_the_handle_and_the_content
        counts_subdirectories
        what_is_missing_cannot_be_renamed
    }
    link {
        two_names_are_one_file
        a_taken_name_is_refused
        directories_have_one_name
        other_kinds_may_be_linked
        many_names
    }
    data {
        what_is_written_is_read
        holes_read_as_zeros
        a_read_behind_the_end_is_empty
        eof_is_told_exactly
        reading_appends_to_the_buffer
        empty_reads_and_writes_do_nothing
        writes_may_overlap
        large_offsets_work
        beyond_the_greatest_size_is_refused
        a_megabyte_at_once
        stability_is_at_least_what_was_asked
        the_write_verifier_stands_still
        commit_takes_any_range
    }
    kinds {
        content_is_for_regular_files
        entries_are_for_directories
        special_files_have_attributes_like_others
    }
    permission {
        the_matrix_of_modes
        the_owner_reads_and_writes_whatever_the_mode
        an_open_is_judged_by_the_mode_alone
        an_opened_file_is_judged_no_more
        who_may_execute_may_read
        supplementary_groups_count
        the_owners_class_decides_for_the_owner
        the_superuser_lacks_only_pointless_execution
        directories_need_search_to_pass_and_write_to_change
        listing_needs_read_permission
        sticky_directories_protect_entries
        a_moving_directory_must_be_writable
        access_tells_what_operations_do
    }
    ownership {
        only_the_owner_changes_the_mode
        only_the_superuser_gives_away
        the_owner_chooses_among_its_groups
        new_objects_belong_to_the_caller
        nobody_creates_for_others
        writing_takes_set_id
        changing_the_group_takes_set_id
        set_group_id_outside_the_group_is_dropped
        who_may_write_may_set_times_to_now
        ordinary_callers_make_no_devices
    }
    pins {
        an_unlinked_open_file_stays
        a_replaced_open_file_stays
        the_last_of_several_opens_counts
        an_open_of_a_named_file_changes_nothing
        what_was_just_seen_is_opened_and_read
    }
    readdir {
        lists_every_entry_once
        an_empty_directory_is_at_its_end
        an_entry_that_stopped_the_listing_is_not_seen
        continues_from_every_cookie
        plus_brings_handles_and_attributes
        thousands_of_entries
        entries_that_stay_are_met_exactly_once
        a_removed_entrys_cookie_still_marks_a_place
        removing_while_listing_empties_the_directory
        file_ids_match_attributes
    }
    handles {
        a_handle_is_the_same_every_time
        gone_files_are_stale_for_every_operation
        malformed_handles_are_refused
        a_handle_never_means_another_file
        handles_differ
        survive_the_move_of_an_ancestor
    }
    acl {
        it_is_kept_and_shows_in_the_mode
        it_grants_and_limits
        a_mode_changes_its_mask
        a_default_is_inherited_and_goes_before_the_umask
        a_mode_without_permissions_closes_what_is_inherited
        only_the_owner_sets_it
        what_has_none_refuses_it
    }
    copy {
        clones_are_whole_and_independent
        clones_keep_holes_and_replace_what_was_there
        clones_inside_one_file_must_not_overlap
        clones_of_part_of_a_block_end_the_destination
        bad_clones_change_nothing
        copies_come_in_steps_and_hold_the_same_bytes
        copies_of_sparse_files_are_sparse
        what_a_hole_is_copied_over_reads_as_zeros
        bad_copies_change_nothing
        both_need_permission_on_both_files
        an_opened_file_is_judged_no_more
    }
    umask {
        the_mode_is_limited_for_every_kind
        special_bits_survive_it
    }
    xattr {
        values_are_kept
        create_and_replace_mean_it
        what_is_missing_is_told
        bad_names_and_sizes_are_refused
        directories_have_them_too
        they_need_permission
        they_go_with_the_file_not_the_name
    }
    space {
        statfs_is_plausible
        seek_finds_data_and_holes
        allocate_extends_with_zeros
        deallocate_punches_and_keeps_the_size
        a_hole_is_written_where_zeros_would_be
        bad_ranges_are_refused
        sync_succeeds
    }
    restart {
        handles_and_identity_survive
        exclusive_creates_are_recognised
        the_change_attribute_does_not_go_back
    }
    random {
        operations_agree_with_the_model
        operations_of_several_callers_agree_with_the_model
    }
}
