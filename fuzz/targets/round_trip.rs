//! Properties of every record that is transferred as a line of JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// If the bytes are a record, it survives writing and reading.
pub fn line<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Ok(read) = serde_json::from_slice::<T>(data) {
        record(&read);
    }
}

/// Any record is written as one line and read back unchanged.
pub fn record<T: Serialize + DeserializeOwned + PartialEq + Debug>(record: &T) {
    let text = serde_json::to_string(record).expect("a record can be written");
    assert!(!text.contains('\n'), "a record is one line: {text}");
    let again: T = serde_json::from_str(&text).expect("a record that was written can be read");
    assert_eq!(*record, again, "{text}");
}
