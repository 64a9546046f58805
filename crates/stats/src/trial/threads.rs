//! Run times of the threads of a role, as its agent reported them.

use bytepath_record::{MODEL, Role, Scope, ThreadTime, Trial};

/// Name of the reading, of `Scope::Role`, of the run time of the engine's threads within the
/// window, in seconds.
pub const ENGINE_RUN: &str = "engine.run";

/// Run times of a role's threads, in cores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Threads {
    pub run: f64,
    pub user: f64,
    pub system: f64,
    /// Kernel threads that poll the device.
    pub polling: f64,
    /// The part of `run` by the flows' own threads: without io_uring workers and helpers.
    engine: f64,
    /// The part of `run` by kernel threads that work in place of the flows' own.
    in_place: f64,
    /// The part of `run` by helpers, which run off the role's CPU.
    pub helpers: f64,
    /// User and system time of modelled devices, which stand for work that takes no CPU time:
    /// included in no other field.
    pub models: [f64; 2],
}

impl Threads {
    pub(crate) fn of(trial: &Trial, role: Role) -> Threads {
        let mut sums = Threads::default();
        let Some(record) = trial.role(role) else { return sums };
        // The interval between the two readings of the threads, which is a little longer than the
        // window; earlier records have only the window.
        let wall = trial.reading("threads.wall", &Scope::Role(role)).filter(|wall| *wall > 0.0);
        let window = if record.window > 0.0 { record.window } else { trial.window };
        let window = wall.unwrap_or(window);
        for t in &record.threads {
            if polls_for_device(t) {
                sums.polling += cores(t.run, window);
            } else if t.name.ends_with(MODEL) {
                let [user, all] = [t.user, t.user + t.system].map(|part| cores(part, window));
                let run = cores(t.run, window);
                let user = if all > 0.0 { run * (user / all) } else { run };
                sums.models = [sums.models[0] + user, sums.models[1] + run - user];
            } else {
                let is_helper = t.name.contains(' ');
                let in_place = is_kernel_worker(&t.name);
                let is_own = !is_helper && !in_place && !t.name.starts_with("iou-");
                sums.in_place += if in_place { cores(t.run, window) } else { 0.0 };
                sums.engine += if is_own { cores(t.run, window) } else { 0.0 };
                sums.helpers += if is_helper { cores(t.run, window) } else { 0.0 };
                sums.run += cores(t.run, window);
                sums.user += cores(t.user, window);
                sums.system += cores(t.system, window);
            }
        }
        sums
    }

    /// Scales to what ran within the window, if the engine reports that. An engine that waits for
    /// kernel threads in its place says nothing about theirs, so nothing is scaled then.
    pub(crate) fn within(self, trial: &Trial, role: Role) -> Threads {
        let window = trial.role(role).map_or(0.0, |record| record.window);
        let run = trial.reading(ENGINE_RUN, &Scope::Role(role)).map(|run| cores(run, window));
        let part = run.map_or(1.0, |run| run / self.engine);
        if !part.is_finite() || part <= 0.0 || self.in_place > 0.0 {
            return self;
        }
        Threads {
            run: self.run * part,
            user: self.user * part,
            system: self.system * part,
            polling: self.polling * part,
            engine: self.engine * part,
            in_place: self.in_place,
            helpers: self.helpers * part,
            models: self.models,
        }
    }
}

/// Returns whether a kernel thread works in place of an end's own: pktgen's and vhost's do.
pub(crate) fn is_kernel_worker(thread: &str) -> bool {
    thread.starts_with("kpktgend_") || thread.starts_with("vhost-")
}

/// Returns whether this is a kernel thread that polls for a device (threaded NAPI).
pub(crate) fn polls_for_device(thread: &ThreadTime) -> bool {
    thread.name.starts_with("napi/")
}

/// Returns CPU seconds over wall seconds; zero if that is not a valid number.
pub(crate) fn cores(seconds: f64, wall: f64) -> f64 {
    let cores = seconds / wall;
    if cores.is_finite() { cores.max(0.0) } else { 0.0 }
}
