//! The hosts that are examined: a testbed, and the kernel that it boots.

use super::bed::{Bed, BedArguments, USUAL, choice, chosen};
use super::run::own_program;
use bytepath_engine::path;
use bytepath_host::testbed::{Site, Testbed};
use bytepath_meter as meter;
use bytepath_record::{Cell, Facts, Fault, FaultKind, Finding, Kernel, Role, Support};
use bytepath_spec::{self as spec, Ask, TestbedChoice};
use bytepath_study::{Laboratory, Stewards, path_spec, preparable, survey, survey_device};
use bytepath_sys as sys;
use clap::Args;
use std::sync::atomic::AtomicBool;

#[derive(Debug, Args)]
pub(super) struct PlaceArguments {
    #[command(flatten)]
    bed: BedArguments,
    /// Kernel that the testbed vm boots: [NAME=]SOURCE [COMMAND LINE]
    #[arg(long, hide_short_help = true, value_name = "KERNEL")]
    kernel: Option<String>,
    /// Check over this device of this host, not on a testbed
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["testbed", "sender", "receiver", "kernel"])]
    device: Option<String>,
}

/// A testbed that is examined.
pub(super) struct Place {
    choice: TestbedChoice,
    bed: Bed,
}

/// A kernel, and what the hosts are under it.
type Seen = (Option<Kernel>, Result<Vec<Facts>, Fault>);

/// Facts of both hosts, and what would distort measurements on hosts that are not this machine.
type Examined = (Result<Vec<Facts>, Fault>, Option<Vec<Finding>>);

impl PlaceArguments {
    /// Whether a device was named.
    pub(super) fn is_device(&self) -> bool {
        self.device.is_some()
    }

    /// The testbed that was named, if one was.
    pub(super) fn choice(&self) -> Result<Option<TestbedChoice>, Fault> {
        self.bed.choice()
    }

    /// Facts of both hosts, or of this one for both roles over the device that
    /// was named. The outer fault is a usage error, the inner one the
    /// testbed's. With `meters`, what those need is tried too.
    pub(super) fn facts(&self, meters: bool) -> Result<Result<Vec<Facts>, Fault>, Fault> {
        match &self.device {
            Some(device) => facts_over(device, meters).map(Ok),
            None => self.facts_at(&self.place()?, meters),
        }
    }

    /// The same with meters, and what would distort measurements on hosts that are not this
    /// machine; none where no such testbed was named. Hosts are connected to once for both.
    pub(super) fn examined(&self) -> Result<Examined, Fault> {
        if let Some(device) = &self.device {
            return Ok((facts_over(device, true).map(Ok)?, None));
        }
        let place = self.place()?;
        Ok((self.facts_at(&place, true)?, place.findings()?))
    }

    /// The devices that were named with the testbed.
    pub(super) fn devices(&self) -> Result<[Option<String>; 2], Fault> {
        match &self.device {
            Some(device) => Ok([Some(device.clone()), Some(device.clone())]),
            None => Ok(self.place()?.bed.as_ref().named_devices()),
        }
    }

    fn place(&self) -> Result<Place, Fault> {
        let choice = self.choice()?.map_or_else(|| choice(USUAL), Ok)?;
        choice.check_kernels(self.kernel.is_some())?;
        Place::new(choice)
    }

    fn facts_at(&self, place: &Place, meters: bool) -> Result<Result<Vec<Facts>, Fault>, Fault> {
        let kernel = self.kernel.as_deref().map(spec::parse_kernel).transpose()?;
        match place.look(kernel.as_ref(), meters) {
            // Hosts that were named have to be there.
            Err(fault) if place.is_given() || fault.kind == FaultKind::Usage => Err(fault),
            looked => Ok(looked),
        }
    }
}

/// A testbed, with all that this program can measure there.
pub(super) fn laboratory<'a>(
    testbed: &'a dyn Testbed,
    stop: &'a AtomicBool,
) -> Result<Laboratory<'a>, Fault> {
    let program = own_program()?;
    Ok(Laboratory { paths: path::CATALOG, meters: meter::CATALOG, testbed, program, stop })
}

/// Facts of this host over a device, for both roles.
fn facts_over(device: &str, meters: bool) -> Result<Vec<Facts>, Fault> {
    sys::device::index(device)
        .map_err(|e| Fault::system(format_args!("the network device {device}"), &e))?;
    let facts = survey_device(path::CATALOG, tried(meters), Some(device));
    Ok(vec![facts.clone(), facts])
}

impl Place {
    /// Raises nothing yet.
    pub(super) fn new(choice: TestbedChoice) -> Result<Place, Fault> {
        Ok(Place::on(choice.clone(), chosen(&choice)?))
    }

    /// On a testbed that was chosen before.
    pub(super) fn on(choice: TestbedChoice, bed: Bed) -> Place {
        Place { choice, bed }
    }

    /// Whether it is hosts that were named.
    fn is_given(&self) -> bool {
        self.bed.as_ref().properties().link_is_given
    }

    fn findings(&self) -> Result<Option<Vec<Finding>>, Fault> {
        if !self.is_given() {
            return Ok(None);
        }
        let mut stewards = Stewards::at(self.bed.as_ref(), &Site::of(&own_program()?))?;
        let of = |(role, findings): (Option<Role>, Vec<Finding>)| {
            findings.into_iter().map(move |finding| match role {
                Some(role) => Finding { what: format!("{role}: {}", finding.what), ..finding },
                None => finding,
            })
        };
        Ok(Some(stewards.examine()?.into_iter().flat_map(of).collect()))
    }

    /// Facts of both hosts under this kernel, with the default link.
    pub(super) fn look(&self, kernel: Option<&Kernel>, meters: bool) -> Result<Vec<Facts>, Fault> {
        if let Some([sender, receiver]) = self.bed.as_ref().devices() {
            return self.look_at([sender, receiver], meters);
        }
        let stop = AtomicBool::new(false);
        let laboratory = laboratory(self.bed.as_ref(), &stop)?;
        let allowed = self.choice.cpus(&sys::thread::allowed().unwrap_or_default().into());
        let cores = spec::parse_cores("none", allowed)?;
        let paths = [path::PAIRS[0].name.to_owned()];
        let kernels: Vec<Kernel> = kernel.cloned().into_iter().collect();
        let ask = Ask { link: self.choice.link, kernels: &kernels, ..Ask::of(&paths, &cores) };
        let (cells, _) = spec::cells(&ask, &path_spec(path::CATALOG, path::PAIRS))?;
        survey(&laboratory, &cells[0], meters)
    }

    /// Facts of this host over devices that stay where they are, for each role its own.
    fn look_at(&self, devices: [String; 2], meters: bool) -> Result<Vec<Facts>, Fault> {
        if let Support::No { reason, remedy } = self.bed.as_ref().probe() {
            return Err(Fault::new(FaultKind::Unsupported, reason).remedy(remedy));
        }
        Ok(devices
            .iter()
            .map(|device| survey_device(path::CATALOG, tried(meters), Some(device)))
            .collect())
    }

    /// Whether the cards could be prepared for a cell, where there are cards.
    pub(super) fn preparable(&self, cell: &Cell) -> Support {
        let able = own_program()
            .and_then(|program| preparable(path::CATALOG, self.bed.as_ref(), &program, cell));
        match able {
            Ok(()) => Support::Yes,
            Err(fault) => Support::no(fault.message, fault.remedy.unwrap_or_default()),
        }
    }

    /// The same for every kernel that cells name.
    pub(super) fn look_for(&self, cells: &[Cell]) -> Vec<Seen> {
        let mut all: Vec<Seen> = Vec::new();
        for cell in cells {
            if !all.iter().any(|(kernel, _)| *kernel == cell.kernel) {
                all.push((cell.kernel.clone(), self.look(cell.kernel.as_ref(), false)));
            }
        }
        all
    }
}

/// Those meters whose needs are tried.
fn tried(meters: bool) -> &'static [&'static meter::Meter] {
    if meters { meter::CATALOG } else { &[] }
}

/// What one host that is not this machine is, and what would distort measurements there.
pub(super) fn of_host(name: &str) -> Result<(Facts, Vec<Finding>), Fault> {
    let choice = BedArguments::with_receiver(name).choice()?;
    let choice = choice.ok_or_else(|| Fault::new(FaultKind::Usage, "no host is named"))?;
    let bed = chosen(&choice)?;
    let program = own_program()?;
    let mut stewards = Stewards::at(bed.as_ref(), &Site::of(&program))?;
    let facts = stewards.survey(Role::Receiver)?;
    let all = stewards.examine()?.into_iter();
    let findings = all.filter(|(role, _)| *role == Some(Role::Receiver)).flat_map(|(_, all)| all);
    let facts = facts.ok_or_else(|| {
        Fault::new(FaultKind::Usage, format!("{name} is this machine")).remedy("leave out --host")
    })?;
    Ok((facts, findings.collect()))
}

/// The support of a path or a meter if the testbed cannot be set up.
pub(super) fn unknown(fault: &Fault) -> Support {
    Support::no(
        format!("unknown, because the testbed cannot be set up: {}", fault.message),
        fault.remedy.clone().unwrap_or_default(),
    )
}
