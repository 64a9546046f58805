//! The offload features that a link switches for itself (ethtool(8), -k).

/// True for any kind of TCP segmentation offload; newer kernels have more of them.
pub fn is_tso(feature: &str) -> bool {
    feature.starts_with("tx-tcp") && feature.ends_with("-segmentation")
}
