//! What holds for every record that travels as a line of JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// If the bytes are a record, it survives being written and read.
pub fn line<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Ok(read) = serde_json::from_slice::<T>(data) {
        record(&read);
    }
}

/// Any record is written as one line and read again as it was.
pub fn record<T: Serialize + DeserializeOwned + PartialEq + Debug>(record: &T) {
    let text = serde_json::to_string(record).expect("a record can be written");
    assert!(!text.contains('\n'), "a record is one line: {text}");
    let again: T = serde_json::from_str(&text).expect("a record that was written can be read");
    assert_eq!(*record, again, "{text}");
}
