//! The mappings of the kernel and of each process.

use crate::Frame;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Index of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModuleId(u32);

/// The address spaces of a profile.
#[derive(Default)]
pub(super) struct Spaces {
    kernel: Rc<Space>,
    processes: HashMap<i32, Rc<Space>>,
    /// The fields that all frames of a module share.
    modules: Vec<Frame>,
    known: HashMap<Frame, ModuleId>,
    copied: usize,
}

/// Mappings by their first address.
type Space = BTreeMap<u64, Mapping>;

#[derive(Clone, Copy)]
struct Mapping {
    end: u64,
    offset: u64,
    module: ModuleId,
}

/// Most mappings of a process: by default it cannot have more (vm.max_map_count is 65530).
const MOST: usize = 1 << 17;

/// Most mappings that may be copied because a child shares its parent's and changes one: a real
/// profile stays far below, and a made-up one cannot exhaust memory.
const COPIES: usize = 1 << 24;

impl Spaces {
    /// Adds a mapping; it is the kernel's if `process` is `None`.
    pub(super) fn map(
        &mut self,
        process: Option<i32>,
        start: u64,
        length: u64,
        offset: u64,
        module: Frame,
    ) -> Result<(), String> {
        let end = start.saturating_add(length);
        if end <= start {
            return Ok(());
        }
        let next = ModuleId(self.modules.len() as u32);
        let modules = &mut self.modules;
        let module = *self.known.entry(module).or_insert_with_key(|module| {
            modules.push(module.clone());
            next
        });
        let space = match process {
            Some(pid) => self.processes.entry(pid).or_default(),
            None => &mut self.kernel,
        };
        if Rc::strong_count(space) > 1 {
            self.copied = self.copied.saturating_add(space.len());
        }
        if self.copied > COPIES || space.len() >= MOST {
            return Err("more mappings than any machine allows".into());
        }
        let space = Rc::make_mut(space);
        // Replace previous mappings.
        while let Some((begin, _)) = space.range(start..end).next() {
            let begin = *begin;
            space.remove(&begin);
        }
        space.insert(start, Mapping { end, offset, module });
        Ok(())
    }

    /// Gives a child its parent's mappings.
    pub(super) fn fork(&mut self, child: i32, parent: i32) {
        if let Some(space) = self.processes.get(&parent) {
            self.processes.insert(child, Rc::clone(space));
        }
    }

    /// Returns the module at an address, and the address as an offset in its file.
    pub(super) fn find(&self, process: Option<i32>, address: u64) -> Option<(ModuleId, u64)> {
        let space = match process {
            Some(pid) => self.processes.get(&pid)?,
            None => &self.kernel,
        };
        let (start, mapping) = space.range(..=address).next_back()?;
        let within = address < mapping.end;
        within.then(|| (mapping.module, (address - start).wrapping_add(mapping.offset)))
    }

    /// Returns a module by its index.
    pub(super) fn module(&self, id: ModuleId) -> Option<&Frame> {
        self.modules.get(id.0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mapping_counts_and_children_have_their_own() {
        let module = |name: &str| Frame { module: name.into(), ..Frame::default() };
        let mut spaces = Spaces::default();
        spaces.map(Some(1), 0x1000, 0x1000, 0x500, module("a")).unwrap();
        spaces.fork(2, 1);
        spaces.map(Some(2), 0x800, 0x1000, 0, module("b")).unwrap();
        spaces.map(Some(2), u64::MAX - 1, 100, 0, module("b")).unwrap();
        spaces.map(Some(2), 5, 0, 0, module("none")).unwrap();
        let name = |pid, address| {
            let (id, offset) = spaces.find(Some(pid), address)?;
            Some((spaces.module(id)?.module.clone(), offset))
        };
        assert_eq!(name(1, 0x1010), Some(("a".into(), 0x510)));
        assert_eq!(name(2, 0x1010), Some(("b".into(), 0x810)));
        assert_eq!(name(2, 0x1810), None);
        assert_eq!(name(3, 0x1010), None);
    }
}
