//! The catalogue entry of a meter, and a running meter.

use super::{Context, Output};
use bytepath_record::{Attempt, Facts, Fault, OptionSpec, Outcome, Support};
use bytepath_sys::Roots;
use std::time::Duration;

/// Describes a meter. An entry specifies what differs from [`Meter::BASE`].
pub struct Meter {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: what it measures and from which source.
    pub summary: &'static str,
    pub reach: Reach,
    /// Options of the form `key=value`, which the meter reads with [`Context::options`].
    pub options: &'static [OptionSpec],
    /// Whether studies that name no meters use it.
    pub usual: bool,
    /// Whether it runs in separate trials only, because it costs the stream
    /// more than other meters do.
    pub separate_trials: bool,
    /// Whether its trials fail on a host where it does not work. Otherwise they go on without it.
    pub needed: bool,
    /// Tries on a host whether it works there, if facts alone do not show that.
    pub attempt: fn(&Roots) -> Option<Attempt>,
    /// Whether it works on a host with these facts.
    pub probe: fn(&Facts) -> Support,
    /// Does what takes too long at the start of a window. Called before bytes flow.
    pub prepare: fn(&Context) -> Result<Option<Prepared>, Fault>,
    /// Starts measuring. Called at the start of the window, so it must be quick (well under a
    /// millisecond). Not called if `prepare` returned something to start.
    pub start: fn(&Context) -> Result<Box<dyn Running>, Fault>,
    /// Ends what was kept across windows, and returns results for all of them together. Called once
    /// the session's engines have ended.
    pub finish: fn(&Context) -> Output,
}

impl Meter {
    /// A meter for every regular trial that works on every host, needs no preparation and measures
    /// nothing.
    pub const BASE: Meter = Meter {
        name: "",
        summary: "",
        reach: Reach::Machine,
        options: &[],
        usual: true,
        separate_trials: false,
        needed: false,
        attempt: |_| None,
        probe: |_| Support::Yes,
        prepare: |_| Ok(None),
        start: |_| at_stop(|| Ok(Output::default())),
        finish: |_| Output::default(),
    };
}

/// Starts a prepared meter, as quickly as [`Meter::start`] does.
pub type Prepared = Box<dyn FnOnce() -> Result<Box<dyn Running>, Fault> + Send>;

/// A meter between start and stop.
pub trait Running: Send {
    /// Called about every [`TICK`].
    fn tick(&mut self) {}

    /// Ends the window.
    fn stop(self: Box<Self>) -> Result<Output, Fault>;
}

/// Makes a running meter without ticks: `stop` is called at the end of the window. Most meters read
/// counters when they start, and there subtract them from a second reading.
pub fn at_stop<F>(stop: F) -> Result<Box<dyn Running>, Fault>
where
    F: FnOnce() -> Result<Output, Fault> + Send + 'static,
{
    struct AtStop<F>(F);
    impl<F: FnOnce() -> Result<Output, Fault> + Send> Running for AtStop<F> {
        fn stop(self: Box<Self>) -> Result<Output, Fault> {
            (self.0)()
        }
    }
    Ok(Box::new(AtStop(stop)))
}

/// Time between two ticks of the agent's control thread.
pub const TICK: Duration = Duration::from_millis(100);

/// Makes the result of trying to load what a meter needs, with a detail if it was loaded.
pub(crate) fn attempted(name: &str, loaded: Result<String, Fault>) -> Option<Attempt> {
    let outcome = loaded.map_or_else(|fault| Outcome::Missing(fault.message), Outcome::Works);
    Some(Attempt { name: name.to_owned(), outcome })
}

/// Where a meter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Once per machine, in one agent: it measures the whole machine.
    Machine,
    /// In every agent: it measures the agent's network namespace and process.
    Agent,
    /// In the engine, which counts itself; the catalogue entry only enables it.
    Engine,
}
