//! Lock owners that another process of the mount takes over.

use super::*;

/// For another process that continues the client.
impl Locks {
    /// Returns all owners, and the last number of one.
    ///
    /// # Errors
    /// An owner has a request under way, or locks under a delegation.
    pub(crate) fn save(&self) -> Result<(Vec<LockerState>, u64), OpError> {
        let lockers = self.lockers.lock();
        let all = lockers.values().flat_map(BTreeMap::values).map(|locker| locker.save());
        Ok((all.collect::<Result<_, _>>()?, self.last_number.load(Ordering::Relaxed)))
    }

    /// Takes the owners of another process, whose opens are `opens`.
    ///
    /// # Errors
    /// An owner names an open that does not exist, or a file handle that is too long.
    pub(crate) fn restore(
        &self,
        lockers: Vec<LockerState>,
        last: u64,
        opens: &OpenFiles,
    ) -> Result<(), OpError> {
        self.last_number.store(last, Ordering::Relaxed);
        for saved in lockers {
            let locker = Arc::new(Locker::restored(&saved, opens)?);
            self.lockers.lock().entry(locker.file).or_default().insert(locker.owner, locker);
        }
        Ok(())
    }
}

impl Locker {
    fn save(&self) -> Result<LockerState, OpError> {
        let busy = |why| OpError::Invalid(Errno::EBUSY, why);
        let under_way = busy("a lock has a request under way");
        let _turn = self.turn.try_lock().ok_or(under_way.clone())?;
        let seqid = *self.seqid.try_lock().ok_or(under_way.clone())?;
        let state = self.state.lock();
        if state.has_local() {
            return Err(busy("a lock is under a delegation"));
        }
        if state.is_reclaiming || self.asking.load(Ordering::Relaxed) > 0 || !seqid.is_known() {
            return Err(under_way);
        }
        let stateid = |(open, of_open): (&u32, &OfOpen)| Some((*open, saved_stateid(of_open.stateid?)));
        Ok(LockerState {
            handle: self.file.to_vec(),
            owner: self.owner.save(),
            number: self.number(),
            seqid: seqid.next(),
            caller: None,
            held: state.held.save(),
            lost: state.lost.save(),
            stateids: state.opens.iter().filter_map(stateid).collect(),
        })
    }

    fn restored(saved: &LockerState, opens: &OpenFiles) -> Result<Self, OpError> {
        let invalid = OpError::Invalid(Errno::EINVAL, "a lock through an open that does not exist");
        let (held, lost) = (HeldRanges::restored(&saved.held), HeldRanges::restored(&saved.lost));
        let stateids: BTreeMap<u32, Stateid> =
            saved.stateids.iter().map(|(open, stateid)| (*open, restored_stateid(*stateid))).collect();
        let through = held.iter().chain(lost.iter()).map(|held| held.open).chain(stateids.keys().copied());
        let mut of_opens = BTreeMap::new();
        for open in through.collect::<std::collections::BTreeSet<u32>>() {
            let file = opens.find(open).ok_or(invalid.clone())?;
            let stateid = stateids.get(&open).copied();
            of_opens
                .insert(open, OfOpen { file, stateid, is_lost: false, is_local: false, is_unproven: false });
        }
        let mut state = State { held, lost, opens: of_opens, ..State::default() };
        state.refresh_lost();
        Ok(Self {
            number: AtomicU64::new(saved.number),
            file: Handle::new(&saved.handle).map_err(|_| invalid)?,
            owner: LockOwner::restored(saved.owner),
            turn: Arc::default(),
            seqid: Seqid::from_next(saved.seqid).into(),
            asking: AtomicUsize::new(0),
            state: Mutex::new(state),
        })
    }
}
