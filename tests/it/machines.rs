//! The machines of `tests/data/meters`, on which meters are run. `linux-6.18-2cpu` was recorded;
//! all others are made up.

use bytepath::meter::{CATALOG, Context, Meter, Output};
use bytepath::record::Scope;
use bytepath::sys::Roots;
use std::fs;
use std::path::Path;

/// The files of a machine at one edge of a window.
pub struct Machine {
    name: &'static str,
    pub dir: tempfile::TempDir,
}

impl Machine {
    pub fn at_start(name: &'static str) -> Machine {
        let machine = Machine { name, dir: tempfile::tempdir().unwrap() };
        machine.lay("start");
        machine
    }

    pub fn roots(&self) -> Roots {
        Roots::recorded(self.dir.path())
    }

    /// Puts the files of an edge in place; files that are already open stay open.
    pub fn lay(&self, edge: &str) {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/meters");
        let from = data.join(self.name).join(edge);
        let mut folders = vec![from.clone()];
        while let Some(folder) = folders.pop() {
            let to = self.dir.path().join(folder.strip_prefix(&from).unwrap());
            fs::create_dir_all(&to).unwrap();
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        fs::write(to.join(path.file_name().unwrap()), fs::read(&path).unwrap())
                            .unwrap()
                    }
                }
            }
        }
    }

    /// Runs a meter over the whole window.
    pub fn measure(&self, name: &str, context: &Context) -> Output {
        let running = (meter(name).start)(context).unwrap();
        self.lay("stop");
        running.stop().unwrap()
    }
}

pub fn meter(name: &str) -> &'static Meter {
    CATALOG.iter().find(|meter| meter.name == name).unwrap()
}

pub fn value(output: &Output, metric: &str, scope: &Scope) -> f64 {
    let found = output.readings.iter().find(|r| r.metric == metric && r.scope == *scope);
    found.unwrap_or_else(|| panic!("no {metric} of {scope:?}: {output:?}")).value
}
