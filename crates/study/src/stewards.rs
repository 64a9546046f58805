//! The stewards of a testbed's hosts, from the controller's side: one in this process
//! where the hosts share this machine, else an agent on each host.

use super::Laboratory;
use super::build;
use super::line::{Line, News};
use bytepath_host::testbed::{Site, Stewardship, Testbed};
use bytepath_host::{Fingerprint, Host, Steward};
use bytepath_record::wire::{Reply, Request, StewardReply, StewardRequest};
use bytepath_record::{
    Facts, Fault, FaultKind, Finding, RestorationRow, Role, SettingRecord, WantedSetting,
};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a steward on another machine may take. Settings of some cards take seconds
/// each.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What hosts are set to, each marked with the role whose it is; one without a mark
/// where they share a machine.
pub(crate) type Fingerprints = Vec<(Option<Role>, Fingerprint)>;

/// What would distort a measurement on hosts, likewise.
pub(crate) type Examination = Vec<(Option<Role>, Vec<Finding>)>;

/// Everyone who keeps settings for a study.
pub struct Stewards {
    seats: Vec<Seat>,
}

struct Seat {
    /// The role on whose host it is; none where the hosts share a machine.
    host: Option<Role>,
    place: Place,
}

enum Place {
    Here(Box<Steward>),
    Away(Away),
}

/// An agent on a host, for nothing else than its settings.
struct Away {
    line: Line,
    inbox: Receiver<((), News)>,
    role: Role,
    host: Box<dyn Host>,
    /// Why it is not asked any more.
    lost: Option<Fault>,
}

impl Stewards {
    /// Those of a testbed.
    pub fn of(laboratory: &Laboratory) -> Result<Stewards, Fault> {
        let Laboratory { testbed, program, stop, .. } = laboratory;
        Stewards::at(*testbed, &Site { program, kernel: None, stop })
    }

    /// Those of a testbed at a site.
    pub fn at(testbed: &dyn Testbed, site: &Site) -> Result<Stewards, Fault> {
        let seats = match testbed.stewardship(site)? {
            Stewardship::Shared(steward) => {
                vec![Seat { host: None, place: Place::Here(steward) }]
            }
            Stewardship::Apart(hosts) => {
                let away = Role::ALL.into_iter().zip(hosts).map(|(role, host)| {
                    let place = Place::Away(Away::greet(role, host, site)?);
                    Ok(Seat { host: Some(role), place })
                });
                away.collect::<Result<_, Fault>>()?
            }
        };
        Ok(Stewards { seats })
    }

    /// Makes settings, each on the host that it is for.
    pub fn apply(
        &mut self,
        wanted: &[WantedSetting],
    ) -> Result<(Vec<SettingRecord>, Vec<RestorationRow>), Fault> {
        let (mut all, mut left) = (Vec::new(), Vec::new());
        for seat in &mut self.seats {
            let wanted = seat.own(wanted);
            if wanted.is_empty() {
                continue;
            }
            match seat.ask(StewardRequest::Apply { wanted })? {
                StewardReply::Applied { records, rows } => {
                    all.extend(seat.marked(records));
                    left.extend(seat.marked_rows(rows));
                }
                other => return Err(unexpected(&other)),
            }
        }
        Ok((all, left))
    }

    /// Makes more for a while.
    pub fn prepare(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.records(wanted, |wanted| StewardRequest::Prepare { wanted })
    }

    /// What would be changed, from what to what.
    pub fn preview(&mut self, wanted: &[WantedSetting]) -> Result<Vec<SettingRecord>, Fault> {
        self.records(wanted, |wanted| StewardRequest::Preview { wanted })
    }

    /// Keeps the GPU of a role's host awake: one that is not held goes to sleep between trials,
    /// and wakes in the first of the next.
    pub fn hold_gpu(&mut self, role: Role) -> Result<(), Fault> {
        let of_role = |seat: &&mut Seat| seat.host.is_none_or(|host| host == role);
        for seat in self.seats.iter_mut().filter(of_role) {
            seat.ask(StewardRequest::HoldGpu)?;
        }
        Ok(())
    }

    /// Whether these can be made; the fault names the one that cannot.
    pub fn feasible(&mut self, wanted: &[WantedSetting]) -> Result<(), Fault> {
        for seat in &mut self.seats {
            let wanted = seat.own(wanted);
            seat.ask(StewardRequest::Feasible { wanted })?;
        }
        Ok(())
    }

    /// Restores what was prepared, the last host first.
    pub fn unprepare(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.rows(&StewardRequest::Unprepare)
    }

    /// Restores everything, the last host first.
    pub fn undo(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.rows(&StewardRequest::Undo)
    }

    /// Restores what runs that died have left.
    pub fn restore(&mut self) -> Result<Vec<RestorationRow>, Fault> {
        self.rows(&StewardRequest::Restore)
    }

    /// What the hosts are set to, each marked with whose it is.
    pub fn fingerprints(&mut self) -> Result<Fingerprints, Fault> {
        self.each(&StewardRequest::Fingerprint, |reply| match reply {
            StewardReply::Fingerprint { settings } => Ok(settings),
            other => Err(unexpected(&other)),
        })
    }

    /// What would distort a measurement on each host.
    pub fn examine(&mut self) -> Result<Examination, Fault> {
        self.each(&StewardRequest::Examine, |reply| match reply {
            StewardReply::Findings { findings } => Ok(findings),
            other => Err(unexpected(&other)),
        })
    }

    /// Asks every host the same; what each says is marked with whose it is.
    fn each<T>(
        &mut self,
        request: &StewardRequest,
        read: impl Fn(StewardReply) -> Result<T, Fault>,
    ) -> Result<Vec<(Option<Role>, T)>, Fault> {
        let ask = |seat: &mut Seat| Ok((seat.host, read(seat.ask(request.clone())?)?));
        self.seats.iter_mut().map(ask).collect()
    }

    /// What the host of a role is, with what paths and meters need; none where it is this
    /// machine.
    pub fn survey(&mut self, role: Role) -> Result<Option<Facts>, Fault> {
        self.facts_by(role, &Request::Survey { device: None, meters: true })
    }

    /// The same of both, but nothing is tried, so that it takes no time.
    pub fn facts(&mut self) -> Result<Option<[Facts; 2]>, Fault> {
        let [sender, receiver] = Role::ALL.map(|role| self.facts_by(role, &Request::Facts));
        Ok(sender?.zip(receiver?).map(<[Facts; 2]>::from))
    }

    fn facts_by(&mut self, role: Role, request: &Request) -> Result<Option<Facts>, Fault> {
        let seat = self.seats.iter_mut().find(|seat| seat.host == Some(role));
        let Some(Seat { place: Place::Away(away), .. }) = seat else { return Ok(None) };
        match away.ask(request)? {
            Reply::Facts(facts) => Ok(Some(*facts)),
            other => Err(super::remote::unexpected(role, &other)),
        }
    }

    fn records(
        &mut self,
        wanted: &[WantedSetting],
        request: impl Fn(Vec<WantedSetting>) -> StewardRequest,
    ) -> Result<Vec<SettingRecord>, Fault> {
        let mut all = Vec::new();
        for seat in &mut self.seats {
            let wanted = seat.own(wanted);
            if wanted.is_empty() {
                continue;
            }
            match seat.ask(request(wanted))? {
                StewardReply::Records { records } => all.extend(seat.marked(records)),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(all)
    }

    /// Every host is asked, also where one has failed.
    fn rows(&mut self, request: &StewardRequest) -> Result<Vec<RestorationRow>, Fault> {
        let (mut all, mut failed) = (Vec::new(), None);
        for seat in self.seats.iter_mut().rev() {
            match seat.ask(request.clone()) {
                Ok(StewardReply::Rows { rows }) => all.extend(seat.marked_rows(rows)),
                Ok(other) => failed = failed.or(Some(unexpected(&other))),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(all), Err)
    }
}

impl Seat {
    /// What of it is for this host. Where the hosts share a machine, all is.
    fn own(&self, wanted: &[WantedSetting]) -> Vec<WantedSetting> {
        let here = |want: &&WantedSetting| {
            self.host.is_none() || want.host.is_none() || want.host == self.host
        };
        wanted.iter().filter(here).cloned().collect()
    }

    fn marked(&self, records: Vec<SettingRecord>) -> impl Iterator<Item = SettingRecord> {
        let host = self.host;
        records.into_iter().map(move |record| SettingRecord { host, ..record })
    }

    fn marked_rows(&self, rows: Vec<RestorationRow>) -> impl Iterator<Item = RestorationRow> {
        let host = self.host;
        rows.into_iter().map(move |row| RestorationRow { host, ..row })
    }

    fn ask(&mut self, request: StewardRequest) -> Result<StewardReply, Fault> {
        match &mut self.place {
            Place::Here(steward) => steward.answer(request),
            Place::Away(away) => match away.ask(&Request::Steward(request))? {
                Reply::Steward(reply) => Ok(reply),
                other => Err(super::remote::unexpected(away.role, &other)),
            },
        }
    }
}

impl Away {
    fn greet(role: Role, mut host: Box<dyn Host>, site: &Site) -> Result<Away, Fault> {
        let (news, inbox) = channel();
        let line = Line::open(host.take_pipe(), (), news)?;
        let mut away = Away { line, inbox, role, host, lost: None };
        let hello = away.ask(&Request::Hello)?;
        build::check(role, &hello, site.program)?;
        Ok(away)
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Fault> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let answer = self.answer(request);
        self.lost =
            answer.as_ref().err().filter(|fault| fault.kind == FaultKind::PeerLost).cloned();
        answer
    }

    fn answer(&mut self, request: &Request) -> Result<Reply, Fault> {
        if self.line.send(request)?.is_err() {
            return Err(self.gone());
        }
        let role = self.role;
        let deadline = Instant::now() + TIMEOUT;
        // A busy one answers a ping anyway.
        let mut pinged = false;
        loop {
            let wait = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(wait.min(self.host.silence() / 2)) {
                Ok((_, News::Said(Reply::Pong))) => pinged = false,
                Ok((_, News::Said(Reply::Failed(fault)))) => return Err(fault.context(role)),
                Ok((_, News::Said(reply))) => return Ok(reply),
                Ok((_, News::Garbled(what))) => {
                    let text =
                        format!("the steward on the {role}'s host sent no valid reply: {what}");
                    return Err(Fault::new(FaultKind::System, text));
                }
                Ok((_, News::Gone)) => return Err(self.gone()),
                Err(_) if pinged || Instant::now() >= deadline => {
                    let how = match pinged {
                        true => self.host.give_up(),
                        false => format!("no answer within {} s", TIMEOUT.as_secs()),
                    };
                    let text = format!("the steward on the {role}'s host is lost: {how}");
                    return Err(Fault::new(FaultKind::PeerLost, text));
                }
                Err(_) => {
                    pinged = true;
                    if self.line.send(&Request::Ping)?.is_err() {
                        return Err(self.gone());
                    }
                }
            }
        }
    }

    fn gone(&mut self) -> Fault {
        let how = self.host.last_words();
        let text = format!("the steward on the {}'s host is gone: {how}", self.role);
        Fault::new(FaultKind::PeerLost, text)
    }
}

fn unexpected(reply: &StewardReply) -> Fault {
    let text = format!("a steward answered out of turn: {reply:?}");
    Fault::new(FaultKind::System, text.chars().take(120).collect::<String>())
}
