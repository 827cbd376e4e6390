//! Filebench's mail server: small files in one directory, synced (2015, Figures 18 and 19).

use super::flow::{Flow, FlowSettings};
use super::{Parameters, Workload};
use crate::runner::{Task, Who};
use crate::targets::{Fault, Files, How, OpenFile as _};

/// Part of the files that exist at the start.
const PREALLOCATED: f64 = 0.8;

/// `varmail`.
pub struct Varmail(FlowSettings);

impl Workload for Varmail {
    fn new(parameters: &Parameters<'_>) -> Self {
        Self(FlowSettings::new(parameters, PREALLOCATED))
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        self.0.set.prepare(files, who).await
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let mut flow = Flow::new(task, &self.0).await?;
        let (set, who) = (&self.0.set, task.who);
        let mut rng = task.rng.clone();
        task.ready().await;
        while !task.meter.is_over() {
            if let Some(number) = set.take_existing(who, &mut rng) {
                flow.delete(&set.path(number)).await?;
                set.put_missing(who, number);
            }
            if let Some(number) = set.take_missing(who, &mut rng) {
                let file = flow.create(&set.path(number)).await?;
                flow.append(&file, 0).await?;
                flow.fsync(&file).await?;
                flow.close(file).await?;
                set.put_existing(who, number);
            }
            if let Some(number) = set.take_existing(who, &mut rng) {
                let file = flow.open(&set.path(number), How::BOTH).await?;
                flow.read_whole(&file).await?;
                flow.append(&file, file.size()).await?;
                flow.fsync(&file).await?;
                flow.close(file).await?;
                set.put_existing(who, number);
            }
            if let Some(number) = set.take_existing(who, &mut rng) {
                let file = flow.open(&set.path(number), How::READ).await?;
                flow.read_whole(&file).await?;
                flow.close(file).await?;
                set.put_existing(who, number);
            }
        }
        Ok(())
    }
}
