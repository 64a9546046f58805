//! Why two cells differ, in the plain formats.

use crate::profiles as made_up;
use crate::shared::words;

use bytepath::profile::subsystem::Subsystem;
use bytepath::profile::symptom::FoundSymptom;
use bytepath::profile::{Explanation, Symptoms, WorkUnit};
use bytepath::report::{self, Style};
use made_up::{explanation, explanation_per};

/// The heading above the meaning of well-known functions.
const SYMPTOMS: &str = "Diagnosis by hot function";

fn text(explanation: &Explanation, width: usize) -> String {
    let mut out = Vec::new();
    let style = Style { width, ..Style::default() };
    report::explanation(explanation, None, true).write(&style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn mail(explanation: &Explanation) -> String {
    let mut out = Vec::new();
    report::explanation(explanation, None, false).write_mail(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_words_name_what_is_beyond_doubt() {
    let said = words(&text(&explanation(3, ""), 100));
    let expected = "tcp-zerocopy-receive saves 0.170 CPU-s/GiB against socket: \
                    0.240 less copying, 0.060 more page mapping, 0.020 more sockets and system \
                    calls, 0.010 less TCP. ";
    assert!(said.contains(expected), "{said}");
    assert!(said.contains("not attributed, within the tolerance of"), "{said}");
    assert!(said.contains("copying: _copy_to_iter 0.1"), "{said}");
}

#[test]
fn costs_are_reported_per_packet() {
    let explanation = explanation_per(WorkUnit::Packet, 3, "");
    // 0.17 CPU-s/GiB over 16384 packets per GiB are 10.4 us for each packet.
    let said = words(&text(&explanation, 100));
    let expected = "tcp-zerocopy-receive saves 10376 CPU-ns/packet against socket: 14644 less \
                    copying, 3650 more page mapping, ";
    assert!(said.contains(expected), "{said}");
    let packets = "A packet is what the receiver's device counts as one: on average 64 \
                   KiB of the stream in socket, 64 KiB in tcp-zerocopy-receive.";
    assert!(said.contains(packets) && !said.contains("differ in kind"), "{said}");
    assert!(words(&mail(&explanation)).contains(packets));
    // Half as many packets, twice as large, are another kind of work.
    let mut other = explanation.clone();
    other.waterfalls[0].after.packet = Some(131072.0);
    assert!(
        words(&text(&other, 100)).contains("These differ in kind of work: compare per GiB, too.")
    );
    // Costs per GiB do not mention packets.
    assert!(!words(&text(&explanation_per(WorkUnit::Gib, 3, ""), 100)).contains("packet is"));
}

#[test]
fn what_cannot_be_compared_is_reported_all_the_same() {
    let notes = vec!["a profile is left out: it is torn".to_owned()];
    let explanation = Explanation { notes, ..Explanation::default() };
    for said in [text(&explanation, 72), mail(&explanation)] {
        assert!(said.contains("Where the CPU time goes") && said.contains("it is torn"), "{said}");
    }
}

#[test]
fn of_an_emulated_processor_nothing_is_said_to_cost_or_save() {
    let explanation = Explanation { functional: true, ..explanation(3, "") };
    for said in [words(&text(&explanation, 100)), words(&mail(&explanation))] {
        let expected = "FUNCTIONAL ONLY: on an emulated processor tcp-zerocopy-receive took 0.170 \
                        CPU-s/GiB less than socket. Which functions ran is \
                        the same as on any machine, what they cost is not. Of the steps these are significant: 0.240 \
                        less copying";
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains(" saves ") && !said.contains(" costs "), "{said}");
    }
}

#[test]
fn a_largest_step_in_doubt_is_not_passed_over() {
    let mut explanation = explanation(3, "");
    explanation.waterfalls[0].parts[0].resolved = false;
    let said = words(&text(&explanation, 100));
    let expected = " against socket. The largest step, 0.240 less copying, is not significant; these \
                    are: 0.060 more page mapping, ";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn where_no_step_is_resolved_the_largest_is_a_candidate() {
    let mut explanation = explanation(3, "");
    for part in &mut explanation.waterfalls[0].parts {
        part.resolved = false;
    }
    let said = words(&text(&explanation, 100));
    let expected = "No step of 1% of the cost or more is significant with 3 profile trials of socket \
                    and 3 of tcp-zerocopy-receive; the largest is 0.240 less copying.";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn submitting_copies_is_a_step_however_small() {
    let mut explanation = explanation(3, "");
    let part = explanation.waterfalls[0].parts.last_mut().unwrap();
    part.change.mean /= 100.0;
    assert!(words(&text(&explanation, 100)).contains(" smaller "), "as any other is");
    explanation.waterfalls[0].parts.last_mut().unwrap().subsystem = Subsystem::CopySubmission;
    let said = words(&text(&explanation, 100));
    assert!(said.contains(" submitting copies "), "{said}");
}

#[test]
fn one_trial_names_nothing() {
    let said = words(&text(&explanation(1, ""), 100));
    assert!(
        said.contains("No step can be singled out: one profile trial of a cell has no interval.")
    );
    assert!(!said.contains("less copying"), "{said}");
    // The steps are shown anyway.
    assert!(said.contains("copying -0.240 - "), "{said}");
}

#[test]
fn every_line_fits_and_is_plain() {
    for hostile in ["", "\x1b[2J<b>\u{202e}\n", "abcdefghi jklmnopqrstuvwxyz0123456789-and-so-on"] {
        let explanation = explanation(2, hostile);
        for (width, printed) in [
            (72, mail(&explanation)),
            (40, text(&explanation, 40)),
            (72, text(&explanation, 72)),
            (120, text(&explanation, 120)),
        ] {
            for line in printed.lines() {
                assert!(line.len() <= width, "{width}: {line}");
                assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{line:?}");
            }
            assert!(printed.contains("copying"), "{printed}");
        }
    }
}

#[test]
fn it_is_read_back_as_it_was_written() {
    let explanation = explanation(3, "");
    let json = serde_json::to_string(&explanation).unwrap();
    assert_eq!(serde_json::from_str::<Explanation>(&json).unwrap(), explanation);
}

#[test]
fn nothing_to_explain_prints_nothing() {
    let nothing = Explanation::default();
    assert_eq!((text(&nothing, 100), mail(&nothing)), (String::new(), String::new()));
}

#[test]
fn symptoms_are_reported_cell_by_cell() {
    let explanation = explanation(2, "");
    assert!(!text(&explanation, 100).contains(SYMPTOMS), "the made-up profiles have none");
    let symptom = FoundSymptom {
        name: "made up".into(),
        shares: vec![0.25, 0.0],
        functions: vec!["one".into(), "two".into()],
        means: "it means nothing".into(),
        remedy: "cat nothing".into(),
    };
    let cells = explanation.symptoms.cells.clone();
    let symptoms = Symptoms { cells, seen: vec![symptom] };
    let explanation = Explanation { symptoms, ..explanation };
    let mut page = Vec::new();
    report::explanation_page(&explanation, None, &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    for said in [words(&text(&explanation, 100)), words(&mail(&explanation))] {
        let line = "made up: socket 25%, tcp-zerocopy-receive 0% (one, two) it means nothing try: \
                    cat nothing";
        assert!(said.contains(SYMPTOMS) && said.contains(line), "{said}");
    }
    assert!(page.contains(SYMPTOMS) && page.contains("<td class=\"n\" data-v=\"25\">25%</td>"));
}
