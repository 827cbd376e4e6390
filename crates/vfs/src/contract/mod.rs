//! Tests that every backend must pass: one suite for the file system in memory, a local directory, and later
//! backends. If two backends could differ, a case here decides which is right, and by which rule.
//!
//! A backend's test file names a function that creates a [`Fixture`] and gets one `#[test]` per case:
//!
//! ```text
//! vfs::contract_tests!(as_root, || Fixture::ready(Arc::new(MemFs::new(&options()))));
//! ```
//!
//! Each case gets a fixture of its own and works in a directory that its caller owns. A case that needs what the
//! fixture's [`Capabilities`] lack prints `skipped:` and the reason. [`random`] contains the random operations; their
//! seed is `ENFYS_SEED` if set.
//!
//! This is test code: it panics if a backend is wrong.

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

/// Drives a future to its end, in the context that the backend needs.
pub type Drive = Box<dyn for<'a> Fn(Pin<&'a mut (dyn Future<Output = ()> + 'a)>)>;

/// Capabilities of a backend under test.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Acts with the given credentials, root's included. Otherwise everything is done as [`Fixture::caller`], and
    /// cases with several callers are skipped.
    pub identities: bool,
    /// Root may create device files.
    pub devices: bool,
    /// Times come from [`crate::Context::now`], not from a clock of the backend.
    pub context_clock: bool,
    /// A change attribute is constant until the next change. Otherwise (if it is made of a coarse clock) it may move
    /// again when the clock's tick is over, because another change may have happened in the same tick.
    pub steady_change: bool,
    /// [`Backend::seek`], [`Backend::allocate`] and [`Backend::deallocate`] work, with holes.
    pub holes: bool,
}

impl Capabilities {
    /// All of them.
    pub const ALL: Self =
        Self { identities: true, devices: true, context_clock: true, steady_change: true, holes: true };
}

/// An empty backend to test.
pub struct Fixture {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// The caller of ordinary cases. Without identities this caller must be able to write the root directory.
    pub caller: Credentials,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// The executor of its futures.
    pub drive: Drive,
    /// Creates another backend over the same storage, as after a restart; `None` if nothing survives the backend.
    pub restart: Option<Box<dyn Fn() -> Arc<dyn Backend>>>,
    /// Values that must live as long as the backend: a temporary directory, a runtime.
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
    /// Creates a fixture of a backend with all capabilities that answers at once; cases run as root.
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

    /// Sets the caller of ordinary cases.
    #[must_use]
    pub fn with_caller(self, caller: Credentials) -> Self {
        Self { caller, ..self }
    }
}

/// Polls a future once.
///
/// # Panics
/// If the future is pending.
fn poll_once(future: Pin<&mut (dyn Future<Output = ()> + '_)>) {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(()) => {}
        Poll::Pending => panic!("the fixture says that this backend answers at once"),
    }
}

/// A named test of the contract.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The topic.
    pub topic: &'static str,
    /// The property that it tests.
    pub name: &'static str,
    /// The test.
    pub run: fn(&Subject),
}

/// Runs one case by name, for [`contract_tests!`](crate::contract_tests).
///
/// # Panics
/// If the backend is wrong, or there is no such case.
pub fn run_case(topic: &str, name: &str, fixture: Fixture) {
    let case = CASES.iter().find(|case| (case.topic, case.name) == (topic, name));
    let case = case.unwrap_or_else(|| panic!("no case {topic}::{name}"));
    (case.run)(&Subject::new(fixture));
}

/// Lists the cases once: for [`CASES`], and for the macro that turns them into tests.
macro_rules! cases {
    ($d:tt $($topic:ident { $($name:ident)+ })+) => {
        /// All cases.
        pub const CASES: &[Case] = &[$($(
            Case { topic: stringify!($topic), name: stringify!($name), run: $topic::$name },
        )+)+];

        /// Creates a module of tests, one per case, on the result of `$make`, a [`Fixture`](crate::contract::Fixture).
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
        a_new_object_has_the_requested_attributes
        the_root_is_a_directory
        properties_and_identity_are_plausible
        setting_nothing_changes_nothing
        mode_is_set_and_kept
        a_symbolic_link_takes_no_mode
        a_size_truncates_and_extends_with_zeros
        only_regular_files_have_a_size_to_set
        a_size_beyond_the_limit_is_refused
        a_guard_must_match_the_change_time
        a_refused_change_changes_nothing
    }
    times {
        times_are_kept_to_the_granularity
        now_is_later_than_the_past
        changes_move_the_right_times
        context_time_is_used_exactly
        a_bad_time_is_refused
        delegated_times_are_set_exactly
    }
    change {
        every_change_of_a_file_moves_its_change_attribute
        every_change_of_a_directory_moves_its_change_attribute
        reading_does_not_move_the_change_attribute
        the_change_attribute_moves_while_the_clock_does_not
        a_thousand_writes_are_a_thousand_changes
        two_hundred_removals_are_two_hundred_changes
        attributes_before_are_those_after_the_last_change
    }
    watch_entries {
        every_change_of_a_listing_ends_the_watch
        unlisted_changes_do_not_end_the_watch
        only_a_directory_has_entries_to_watch
    }
    names {
        bad_names_are_refused_by_every_operation
        the_longest_name_is_allowed_and_one_more_byte_is_not
        names_are_raw_bytes
        case_sensitivity_is_as_declared
    }
    lookup {
        finds_every_kind
        a_missing_name_is_not_found
        only_directories_have_entries
        links_are_not_followed
        parent_leads_up_to_the_root
        readlink_is_for_links_only
    }
    create {
        unchecked_accepts_an_existing_file
        unchecked_truncates_to_the_given_size
        guarded_refuses_an_existing_file
        exclusive_recognizes_a_retransmission
        exclusive_refuses_another_verifier_and_other_files
        an_existing_name_is_refused_for_every_kind
        defaults_are_private
        given_attributes_are_set_by_create
        devices_keep_their_numbers
        creating_in_a_file_fails
        a_symlink_keeps_its_text_byte_for_byte
        set_group_id_is_inherited
    }
    remove {
        a_file_is_removed_with_its_last_name
        kinds_are_distinguished
        a_nonempty_directory_is_not_removed
        a_missing_name_cannot_be_removed
        a_removed_name_can_be_reused
    }
    rename {
        moves_within_and_across_directories
        replaces_a_file
        replaces_an_empty_directory_only
        kinds_do_not_replace_each_other
        onto_itself_does_nothing
        two_names_of_one_file_do_nothing
        a_directory_cannot_move_into_itself
        a_directory_does_not_replace_its_ancestor
        keeps_the_handle_and_the_content
        counts_subdirectories
        a_missing_name_cannot_be_renamed
    }
    link {
        two_names_are_one_file
        an_existing_name_is_refused
        directories_have_one_name
        other_kinds_may_be_linked
        a_file_has_many_names
    }
    data {
        written_data_are_read
        holes_read_as_zeros
        a_read_after_the_end_is_empty
        eof_is_exact
        reading_appends_to_the_buffer
        empty_reads_and_writes_do_nothing
        writes_may_overlap
        large_offsets_work
        writes_beyond_the_greatest_size_are_refused
        a_megabyte_is_written_and_read
        stability_is_at_least_as_requested
        the_write_verifier_is_constant
        commit_takes_any_range
    }
    kinds {
        content_is_for_regular_files
        entries_are_for_directories
        special_files_have_attributes_like_others
    }
    permission {
        the_matrix_of_modes
        the_owner_reads_and_writes_regardless_of_the_mode
        an_open_is_checked_by_the_mode_only
        an_opened_file_is_not_checked_again
        callers_that_may_execute_may_read
        supplementary_groups_count
        only_the_owners_class_counts_for_the_owner
        root_may_not_execute_files_without_execute_bits
        directories_need_search_to_pass_and_write_to_change
        listing_needs_read_permission
        sticky_directories_protect_entries
        a_moving_directory_must_be_writable
        access_agrees_with_operations
    }
    ownership {
        only_the_owner_changes_the_mode
        only_root_gives_files_away
        the_owner_chooses_among_its_groups
        new_objects_belong_to_the_caller
        objects_are_not_created_for_others
        writing_clears_set_id
        changing_the_group_clears_set_id
        set_group_id_outside_the_group_is_dropped
        writers_may_set_times_to_now
        ordinary_callers_cannot_create_devices
    }
    pins {
        an_unlinked_open_file_stays
        a_replaced_open_file_stays
        the_last_of_several_opens_counts
        an_open_of_a_named_file_changes_nothing
        a_file_is_opened_and_read_with_known_attributes
    }
    readdir {
        lists_every_entry_once
        an_empty_directory_is_at_its_end
        an_entry_that_stopped_the_listing_is_listed_again
        continues_from_every_cookie
        plus_returns_handles_and_attributes
        thousands_of_entries
        entries_that_stay_are_listed_exactly_once
        a_removed_entrys_cookie_still_marks_a_place
        removing_while_listing_empties_the_directory
        file_ids_match_attributes
    }
    handles {
        lookups_return_equal_handles
        removed_files_are_stale_for_every_operation
        malformed_handles_are_refused
        a_handle_never_refers_to_another_file
        handles_differ
        handles_survive_the_move_of_an_ancestor
    }
    acl {
        an_acl_is_kept_and_shows_in_the_mode
        an_acl_grants_and_limits
        a_mode_changes_its_mask
        a_default_acl_is_inherited_and_replaces_the_umask
        a_mode_without_permissions_limits_an_inherited_acl
        only_the_owner_sets_an_acl
        objects_without_acls_refuse_them
    }
    copy {
        clones_are_whole_and_independent
        clones_keep_holes_and_replace_old_data
        clones_inside_one_file_must_not_overlap
        clones_of_part_of_a_block_end_the_destination
        bad_clones_change_nothing
        copies_run_in_steps_and_have_the_same_bytes
        copies_of_sparse_files_are_sparse
        data_under_a_copied_hole_read_as_zeros
        bad_copies_change_nothing
        both_need_permission_on_both_files
        an_opened_file_is_not_checked_again
    }
    umask {
        the_mode_is_limited_for_every_kind
        special_bits_survive_the_umask
    }
    xattr {
        values_are_kept
        create_and_replace_are_exact
        a_missing_attribute_is_an_error
        bad_names_and_sizes_are_refused
        directories_have_extended_attributes
        extended_attributes_need_permission
        extended_attributes_belong_to_the_file
    }
    space {
        statfs_is_plausible
        seek_finds_data_and_holes
        allocate_extends_with_zeros
        deallocate_punches_and_keeps_the_size
        a_written_hole_equals_written_zeros
        bad_ranges_are_refused
        sync_succeeds
    }
    restart {
        handles_and_identity_survive
        exclusive_creates_are_recognized
        the_change_attribute_does_not_go_back
    }
    random {
        operations_agree_with_the_model
        operations_of_several_callers_agree_with_the_model
    }
}
