//! From what a user asks to validated cells. Pure: the catalogues come in as
//! plain declarations, and the same request gives the same cells anywhere.

mod cells;
mod link;
mod options;
mod order;
mod placement;
mod stream;

pub use cells::{Ask, PairDeclaration, PathDeclaration, PathSpec, cells};
pub use link::{LINK_OPTIONS, PRESETS, Preset, parse_link};
pub use options::{did_you_mean, resolve, split};
pub use order::order;
pub use placement::{CoreSpec, parse_cores};
pub use stream::{STREAM_OPTIONS, parse_stream};
