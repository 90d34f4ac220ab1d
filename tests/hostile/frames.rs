//! Frames whose length promises more than ever comes in; 1001 for what no frame may have, and memory for what came and
//! not for what was promised, out.

use crate::field::Field;
use crate::peer::{ERROR_FRAME, RawLink, Transport};
use crate::support::{decode, field as field_of};

const MIB: usize = 1024 * 1024;
/// Links of each kind.
const OF_EACH: usize = 8;
/// Bytes that come of each promised frame.
const BYTES_COME: usize = 4 * 1024;

fn links(field: &Field) -> Vec<RawLink> {
    let each = (0..OF_EACH).flat_map(|_| Transport::ALL);
    let mut links: Vec<_> = each.map(|transport| RawLink::open(&field.sidecar, transport)).collect();
    links.iter_mut().for_each(RawLink::use_control_stream);
    links
}

#[test]
fn lengths_of_4_gib_are_1001_at_once() {
    let mut field = Field::start();
    field.withstands("lengths of 4 GiB", |field| {
        let mut links = links(field);
        for link in &mut links {
            link.send_raw(&[0xff; 4]);
        }
        for link in &mut links {
            let frames = link.closed();
            let [only] = frames.as_slice() else { panic!("{link:?}: {frames:?}") };
            assert_eq!(only.frame_type, ERROR_FRAME, "{link:?}: {only:?}");
            assert_eq!(field_of(&decode(&only.payload), "code"), Some(&1001.into()), "{link:?}");
        }
        links
    });
}

#[test]
fn lengths_whose_bytes_never_come_cost_what_came() {
    let mut field = Field::start();
    let promised = u32::try_from(16 * MIB).unwrap().to_be_bytes();
    let begun = [&promised[..], &[1], &vec![0xa0; BYTES_COME]].concat();
    field.withstands("16 MiB promised on every link", |field| {
        let before = field.sidecar.memory_kib();
        let mut links = links(field);
        for link in &mut links {
            link.send_raw(&begun);
        }
        // A newcomer's answer comes after what was sent before it was read, or soon enough to see a buffer grow.
        RawLink::open(&field.sidecar, Transport::Tcp).ping();
        let during = field.sidecar.memory_kib();
        // 32 links of which each promised 16 MiB: half a GiB, of which at most a buffer's growth may be seen.
        assert!(during < before + 16 * 1024, "{before} KiB before, {during} KiB with half a GiB promised");
        links
    });
    let mut link = RawLink::open(&field.sidecar, Transport::Tcp);
    link.send_raw(&begun);
    link.finish();
    let frames = link.closed();
    let code = frames.last().map(|frame| decode(&frame.payload));
    let code = code.as_ref().and_then(|error| field_of(error, "code"));
    assert_eq!(code, Some(&1001.into()), "bytes that end inside a frame: {frames:?}");
}
