//! What a guest is booted from and with.

use super::kernel::{self, Image};
use super::modules::Modules;
use super::{initramfs, nics};
use bytepath_record::Fault;
use std::path::Path;

/// Modules that guests load if the kernel has them, and whether a session needs
/// them: the port to the host, the pair of devices between two agents, then what
/// paths and congestion controls may require.
const MODULES: &[(&str, bool)] = &[
    ("virtio_pci", true),
    ("virtio_console", true),
    ("veth", true),
    ("virtio_net", false),
    ("tcp_bbr", false),
    ("tcp_dctcp", false),
    ("udmabuf", false),
    ("dummy", false),
    ("tun", false),
    ("macvtap", false),
    ("sch_fq_codel", false),
    ("sch_fq", false),
    ("vhost_net", false),
    ("pktgen", false),
    ("tls", false),
    // Its cipher, with instructions of the processor or without.
    ("aesni_intel", false),
    ("ghash_generic", false),
    ("ctr", false),
    ("gcm", false),
];

/// The image of a kernel and the file system of its guests: this program, others
/// where the first of each pair says, modules, and with `cards` the one of two cards.
pub fn prepare(
    kernel: &str,
    program: &Path,
    others: &[(&str, &Path)],
    cards: bool,
) -> Result<(Image, Vec<u8>), Fault> {
    let image = kernel::find(kernel)?;
    let modules = modules_of(&image)?;
    if cards {
        has_cards(kernel, &modules)?;
    }
    let wanted: Vec<(&str, bool)> =
        MODULES.iter().copied().chain(cards.then_some((nics::MODULE, true))).collect();
    let modules = modules.order(&wanted).map_err(|f| f.context(image.path.display()))?;
    let archive = initramfs::build(program, others, &modules)?;
    Ok((image, archive))
}

/// Whether a kernel has everything for a guest; with `cards` also those.
pub fn bootable(kernel: &str, cards: bool) -> Result<(), Fault> {
    let image = kernel::find(kernel)?;
    if cards { has_cards(kernel, &modules_of(&image)?) } else { Ok(()) }
}

fn modules_of(image: &Image) -> Result<Modules, Fault> {
    image.modules.as_deref().map_or_else(|| Ok(Modules::unknown()), Modules::of)
}

fn has_cards(kernel: &str, modules: &Modules) -> Result<(), Fault> {
    if modules.has(nics::MODULE) {
        return Ok(());
    }
    Err(Fault::unsupported(format!("there is no module {} for kernel {kernel}", nics::MODULE))
        .remedy("make vm-nic builds it for the newest kernel 7.x that make vm-kernel fetched"))
}
