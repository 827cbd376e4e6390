//! COPY, and OFFLOAD_STATUS and OFFLOAD_CANCEL of a copy in the background (RFC 7862 §15.2, §15.9, §15.8).

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::callback::offload::OffloadInfo;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::copy::{CopyArgs, CopyOk, CopyResult, OffloadArgs};
use protocol::nfs4::types::{StableHow, Stateid, Status, WriteResponse};
use xdr::List;

use super::super::Nfs4;
use super::super::getattr::{get_attributes, get_change, take_attributes, take_change};
use super::super::statuses::{Recovery, recovery};
use super::super::wire::{put, take};
use crate::attributes::{Before, Changed};
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{CopyReply, FileHandle, OpenState, Ranges, Stability};

/// The pause before the first OFFLOAD_STATUS; each further one is twice as long. CB_OFFLOAD ends it.
const POLL_FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
const POLL_MAX: Duration = Duration::from_secs(5);
/// OFFLOAD_STATUSes in succession without progress, after which a copy is abandoned: five minutes.
const STALLED_MAX: u32 = 60;
/// Number of restarts of a copy whose server has forgotten it.
const RESTARTS_MAX: u32 = 8;

impl Nfs4 {
    /// Copies a range of one file to another at the server, and waits for a copy in the background. Returns the number of bytes
    /// copied, which may be fewer than requested. If the caller drops the future, the copy is cancelled.
    pub(crate) async fn copy(
        self: &Arc<Self>,
        caller: &Caller,
        source: (FileHandle, &OpenState),
        destination: (FileHandle, &OpenState),
        ranges: Ranges,
    ) -> Result<CopyReply, OpError> {
        self.needs_4_2("COPY")?;
        for _ in 0..RESTARTS_MAX {
            let (ok, file) = self.start_copy(caller, source, destination, ranges).await?;
            let Some(stateid) = ok.response.callback_id.first().copied() else {
                return Ok(CopyReply { file, ..reply(&ok.response, ranges.count)? });
            };
            let ended = self.await_copy(caller, destination.0, stateid, &ok.response, ranges.count).await?;
            // Without a reply the server has restarted.
            if let Some(reply) = ended {
                // The attributes that came with the first reply are from before the end of the copy.
                return Ok(CopyReply {
                    file: Changed { before: file.before, ..Changed::default() },
                    ..reply
                });
            }
        }
        Err(OpError::BadReply("it forgets every copy"))
    }

    async fn start_copy(
        &self,
        caller: &Caller,
        source: (FileHandle, &OpenState),
        destination: (FileHandle, &OpenState),
        ranges: Ranges,
    ) -> Result<(CopyOk, Changed), OpError> {
        let Ranges { source_offset, destination_offset, count } = ranges;
        self.with_stateid(destination.1, async |destination_stateid| {
            self.with_stateid(source.1, async |source_stateid| {
                let copy = Op::Copy(CopyArgs {
                    source_stateid,
                    destination_stateid,
                    source_offset,
                    destination_offset,
                    count,
                    // Without it the count of a copy that ends early would be meaningless.
                    consecutive: true,
                    synchronous: false,
                    source_servers: List::default(),
                });
                let ops =
                    [put(source.0), Op::SaveFh, put(destination.0), get_change(), copy, get_attributes()];
                let mut results = self.change(caller, &ops).await?;
                results.skip_many(3)?;
                let before = take_change(&mut results)?.map(Before::Change);
                let ok = results.next(|result| match result {
                    OpResult::Copy(CopyResult::Ok(ok)) => Some(ok),
                    _ => None,
                })?;
                let after = take_attributes(&mut results).ok();
                Ok((ok, Changed { before, after, ..Changed::default() }))
            })
            .await
        })
        .await
    }

    /// Waits for a copy in the background: CB_OFFLOAD reports its end, and OFFLOAD_STATUS in case that is lost. `None` if the server does
    /// not know the copy any longer.
    async fn await_copy(
        self: &Arc<Self>,
        caller: &Caller,
        destination: FileHandle,
        stateid: Stateid,
        started: &WriteResponse,
        asked: u64,
    ) -> Result<Option<CopyReply>, OpError> {
        let waiting = self.offloads.begin(&stateid);
        let mut cancelling = CancelGuard::new(self, caller, destination, stateid);
        let (mut pause, mut copied, mut stalled) = (POLL_FIRST, 0, 0);
        loop {
            if let Some(end) = waiting.end(self.engine.sleep(pause)).await {
                cancelling.disarm();
                return match end {
                    OffloadInfo::Ok(response) => reply(&response, asked).map(Some),
                    OffloadInfo::Error(status, _) => Err(OpError::Status(status)),
                };
            }
            pause = (pause * 2).min(POLL_MAX);
            let status = Op::OffloadStatus(OffloadArgs { stateid });
            let mut results = self.read_only(caller, &[put(destination), status]).await?;
            results.skip()?;
            let progress = match take!(results, OffloadStatus) {
                Ok(progress) => progress,
                Err(OpError::Status(status)) if recovery(status) == Recovery::Reopen => {
                    cancelling.disarm();
                    // The end may have arrived in between.
                    return match waiting.end(std::future::ready(())).await {
                        Some(OffloadInfo::Ok(response)) => reply(&response, asked).map(Some),
                        Some(OffloadInfo::Error(status, _)) => Err(OpError::Status(status)),
                        None => Ok(None),
                    };
                }
                Err(error) => return Err(error),
            };
            match progress.complete.first() {
                Some(&Status::OK) => {
                    cancelling.disarm();
                    // The stability of the data is unknown.
                    let committed = StableHow::Unstable;
                    let response = WriteResponse { count: progress.count, committed, ..started.clone() };
                    return reply(&response, asked).map(Some);
                }
                Some(status) => {
                    cancelling.disarm();
                    return Err(OpError::Status(*status));
                }
                None => {}
            }
            stalled = if progress.count > copied { 0 } else { stalled + 1 };
            copied = progress.count;
            if stalled >= STALLED_MAX {
                return Err(OpError::BadReply("a copy in the background that makes no progress"));
            }
        }
    }
}

fn reply(response: &WriteResponse, asked: u64) -> Result<CopyReply, OpError> {
    // A count of 0 requests all that follows.
    if asked > 0 && response.count > asked {
        return Err(OpError::BadReply("a COPY of more than requested"));
    }
    let stability = match response.committed {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    };
    let file = Changed::default();
    Ok(CopyReply { count: response.count, stability, verifier: response.verifier, file })
}

/// Cancels a copy in the background for which no task waits any longer.
struct CancelGuard<'a> {
    nfs4: &'a Arc<Nfs4>,
    cancel: Option<(Caller, FileHandle, Stateid)>,
}

impl<'a> CancelGuard<'a> {
    fn new(nfs4: &'a Arc<Nfs4>, caller: &Caller, destination: FileHandle, stateid: Stateid) -> Self {
        Self { nfs4, cancel: Some((caller.clone(), destination, stateid)) }
    }

    fn disarm(&mut self) {
        self.cancel = None;
    }
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        let Some((caller, destination, stateid)) = self.cancel.take() else { return };
        let nfs4 = Arc::clone(self.nfs4);
        self.nfs4.background.add(Box::pin(async move {
            let cancel = Op::OffloadCancel(OffloadArgs { stateid });
            // A copy that has ended needs no cancellation.
            let _ = nfs4.change(&caller, &[put(destination), cancel]).await;
        }));
    }
}
