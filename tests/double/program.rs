//! A program for tests to start: each command belongs to the test that uses it.

mod agent;
mod calls;
mod card;
mod census;
mod encryption;
#[path = "../lab/ends.rs"]
mod ends;
mod killed;
mod moves;
#[path = "../lab/paths.rs"]
#[allow(dead_code, unused_imports, reason = "without its tests only the sender is left")]
mod paths;
mod steering;
mod uncommon;
mod upset;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["agent"] => agent::agent(),
        ["controller"] => agent::controller(),
        ["sender", address, path] => paths::sender_double(address, path),
        ["family"] => calls::family(),
        ["sockets"] => calls::sockets(),
        ["killed", study, setting, program, ref arguments @ ..] => {
            killed::killed(study, setting, program, arguments);
        }
        ["context", device, first, count] => {
            steering::context(device, first.parse().unwrap(), count.parse().unwrap());
        }
        ["card", device] => card::card(device),
        ["place", device] => upset::place(device),
        ["no-agents"] => upset::await_no_agents(),
        ["read", file] => print!("{}", std::fs::read_to_string(file).unwrap()),
        ["write", file, text] => std::fs::write(file, text).unwrap(),
        ["upset", study, trials, device, ref deed @ ..] => {
            upset::upset(study, trials.parse().unwrap(), device, deed);
        }
        ["census"] => census::census(),
        ["encrypted", who, ref senders @ ..] => encryption::encrypted(who, senders),
        ["endless"] => calls::endless(),
        ["copied", bytes] => moves::copied(bytes.parse().unwrap()),
        ["reference", bytes] => moves::reference(bytes.parse().unwrap()),
        ["uncommon", "positioned"] => uncommon::positioned(),
        ["uncommon", "fast-open"] => uncommon::fast_open(),
        ["uncommon", "multipath"] => uncommon::multipath(),
        ["uncommon", "left-behind"] => uncommon::left_behind(),
        ["uncommon", "ring"] => uncommon::ring(),
        ["uncommon", "compat"] => uncommon::compat(),
        ["truncated", bytes] => moves::truncated(bytes.parse().unwrap()),
        _ => panic!("there is no part {words:?}"),
    }
}
