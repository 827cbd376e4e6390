//! The workloads: the operations of each thread of each client. One file each; [`crate::plan::WORKLOADS`] has their parameters.

mod basic;
mod bonnie;
mod client_file;
mod create;
mod database;
mod file_set;
mod files;
mod fileserver;
mod find;
mod flow;
mod list;
mod locked_reads;
mod random_read;
mod random_write;
mod recall;
mod replay;
mod request_mix;
mod sequential_read;
mod sequential_write;
mod small_files;
mod source_tree;
mod stream_write;
mod tree;
mod varmail;
mod webserver;

use std::collections::BTreeMap;

use crate::plan::Value;
use crate::runner::{Ends, Task, Who};
use crate::targets::{Fault, Files};
use crate::units::parse_size;

pub(crate) use self::files::{make_directory, remove_tree};

/// The interface of a workload for the runner.
#[allow(async_fn_in_trait, reason = "the runner alone calls it, in one thread")]
pub trait Workload: Sized {
    /// When a run ends.
    const ENDS: Ends = Ends::Time;
    /// Whether its files are the same after a run, so that the next run with the same parameters can use them.
    const KEEPS_FILES: bool = false;

    /// Takes the parameters of a case, which are valid.
    fn new(parameters: &Parameters<'_>) -> Self;
    /// Creates the files that the run needs, unless they exist. Each client calls it once, with thread 0.
    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault>;
    /// Works until [`Meter::is_over`](crate::runner::Meter::is_over), or until the work is done. Calls [`Task::ready`] when
    /// its files are open.
    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault>;
}

/// The parameters of a case.
pub struct Parameters<'c>(pub &'c BTreeMap<String, Value>);

impl Parameters<'_> {
    /// Returns a size in bytes.
    #[must_use]
    pub fn size(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(Value::Text(text)) => parse_size(text).unwrap_or_default(),
            Some(Value::Count(count)) => *count,
            _ => 0,
        }
    }

    /// Returns a count.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(Value::Count(count)) => *count,
            _ => 0,
        }
    }

    /// Returns a text.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        match self.0.get(name) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// Returns whether a switch is on.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Boolean(true))
    }
}

macro_rules! workloads {
    ($($name:literal $variant:ident $type:path;)*) => {
        /// Any workload.
        pub enum Any {
            $(#[doc = concat!("`", $name, "`.")] $variant($type),)*
        }

        impl Any {
            /// The names of all workloads that can run.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Returns the workload of a case; `None` if there is none with this name.
            #[must_use]
            pub fn new(name: &str, parameters: &Parameters<'_>) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant(<$type>::new(parameters))),)*
                    _ => None,
                }
            }

            /// See [`Workload::ENDS`].
            #[must_use]
            pub fn ends(&self) -> Ends {
                match self { $(Self::$variant(_) => <$type>::ENDS,)* }
            }

            /// See [`Workload::KEEPS_FILES`].
            #[must_use]
            pub fn keeps_files(&self) -> bool {
                match self { $(Self::$variant(_) => <$type>::KEEPS_FILES,)* }
            }

            pub(crate) async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
                match self { $(Self::$variant(workload) => workload.prepare(files, who).await,)* }
            }

            pub(crate) async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
                match self { $(Self::$variant(workload) => workload.work(task).await,)* }
            }
        }
    };
}

workloads! {
    "random-read" RandomRead random_read::RandomRead;
    "sequential-read" SequentialRead sequential_read::SequentialRead;
    "random-write" RandomWrite random_write::RandomWrite;
    "sequential-write" SequentialWrite sequential_write::SequentialWrite;
    "small-files" SmallFiles small_files::SmallFiles;
    "create" Create create::Create;
    "list" List list::List;
    "locked-reads" LockedReads locked_reads::LockedReads;
    "recall" Recall recall::Recall;
    "stream-write" StreamWrite stream_write::StreamWrite;
    "fileserver" Fileserver fileserver::Fileserver;
    "webserver" Webserver webserver::Webserver;
    "varmail" Varmail varmail::Varmail;
    "database" Database database::Database;
    "basic" Basic basic::Basic;
    "find" Find find::Find;
    "source-tree" SourceTree source_tree::SourceTree;
    "bonnie" Bonnie bonnie::Bonnie;
    "replay" Replay replay::Replay;
    "request-mix" RequestMix request_mix::RequestMix;
}

#[cfg(test)]
mod tests;
