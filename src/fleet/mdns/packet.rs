//! Reads and writes the DNS messages of mDNS: bytes of the network in, the few records that a fleet uses out; and back.
//!
//! A sidecar asks for the instances of [`SERVICE`] and takes in their TXT records. Everything else in a message is
//! skipped. The reader allocates no more than the message's own size, and reads each byte a bounded number of times.
//!
//! **Source:** RFC 1035 section 4; RFC 6762 section 18; RFC 6763 sections 4 to 6.

use std::net::Ipv4Addr;

use thiserror::Error;

/// What a message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Somebody asks. Whether it is about instances of the service.
    Query(bool),
    /// Somebody answers, or announces: TXT records of instances of the service.
    Response(Vec<Text>),
}

/// The TXT record of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// How long it counts; 0 takes it back. **Units:** seconds.
    pub(super) ttl_s: u32,
    /// Its strings, each of at most 255 bytes.
    pub(super) strings: Vec<Vec<u8>>,
}

/// One instance of the service, as it is announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    /// The first label of its name.
    pub(super) label: String,
    /// The first label of its host's name.
    pub(super) host: String,
    /// The host's address, where it is known.
    pub(super) address: Option<Ipv4Addr>,
    /// Its port.
    pub(super) port: u16,
    /// The strings of its TXT record.
    pub(super) strings: Vec<Vec<u8>>,
}

/// Bytes that are no message of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum PacketError {
    /// It ends in the middle of something.
    #[error("the message is cut short")]
    Truncated,
    /// A name has a label of an unknown kind, is too long, or points forward.
    #[error("a name is malformed")]
    Name,
    /// Neither a query nor an answer of mDNS.
    #[error("the message is of another kind")]
    Kind,
}

/// A query for the instances of the service.
pub(super) fn query() -> Vec<u8> {
    let mut packet = Vec::with_capacity(64);
    header(&mut packet, 0, [1, 0]);
    name(&mut packet, &SERVICE);
    packet.extend_from_slice(&TYPE_PTR.to_be_bytes());
    packet.extend_from_slice(&CLASS_IN.to_be_bytes());
    packet
}

/// The announcement of one instance, or its end where `ttl_s` is 0: PTR, SRV and TXT, and the host's A record.
pub(super) fn announcement(instance: &Instance, ttl_s: u32) -> Vec<u8> {
    let mut packet = Vec::with_capacity(PACKET_BYTES_USUAL);
    header(&mut packet, FLAGS_RESPONSE, [0, 3 + u16::from(instance.address.is_some())]);
    let full = [&instance.label, SERVICE[0], SERVICE[1], SERVICE[2]];
    let host = [&*instance.host, SERVICE[2]];
    record(&mut packet, &SERVICE, (TYPE_PTR, CLASS_IN, ttl_s), |rdata| name(rdata, &full));
    record(&mut packet, &full, (TYPE_SRV, CLASS_IN | CACHE_FLUSH, ttl_s), |rdata| {
        // Priority and weight.
        rdata.extend_from_slice(&[0; 4]);
        rdata.extend_from_slice(&instance.port.to_be_bytes());
        name(rdata, &host);
    });
    record(&mut packet, &full, (TYPE_TXT, CLASS_IN | CACHE_FLUSH, ttl_s), |rdata| {
        for string in &instance.strings {
            string_of(rdata, string);
        }
    });
    if let Some(address) = instance.address {
        // The host stays when one of its instances goes.
        let class = (TYPE_A, CLASS_IN | CACHE_FLUSH, ttl_s.max(1));
        record(&mut packet, &host, class, |rdata| rdata.extend_from_slice(&address.octets()));
    }
    packet
}

/// Reads a message. Records that are no TXT record of the service are skipped.
///
/// **Errors:** bytes that are no such message. Nothing of a malformed message counts.
pub(super) fn decode(packet: &[u8]) -> Result<Message, PacketError> {
    let mut reader = Reader { packet, at: 0 };
    let _id = reader.u16()?;
    let flags = reader.u16()?;
    if flags & FLAGS_NOT_OURS != 0 {
        return Err(PacketError::Kind);
    }
    let questions = reader.u16()?;
    let answers = reader.u16()?;
    // RFC 6762 8.2: what a probe would announce stands among the authorities, and is not announced yet.
    let authorities = reader.u16()?;
    let additional = reader.u16()?;
    let mut is_asked = false;
    for _ in 0..questions {
        let name = reader.name()?;
        let (kind, _class) = (reader.u16()?, reader.u16()?);
        is_asked |= match name.of_service() {
            Some(0) => matches!(kind, TYPE_PTR | TYPE_ANY),
            Some(1) => matches!(kind, TYPE_TXT | TYPE_SRV | TYPE_ANY),
            Some(_) | None => false,
        };
    }
    if flags & FLAG_RESPONSE == 0 {
        return Ok(Message::Query(is_asked));
    }
    let mut texts = Vec::new();
    let records = [(answers, true), (authorities, false), (additional, true)];
    for (count, is_said) in records {
        for _ in 0..count {
            let text = reader.record()?;
            texts.extend(text.filter(|_| is_said));
        }
    }
    Ok(Message::Response(texts))
}

struct Reader<'a> {
    packet: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], PacketError> {
        let end = self.at.checked_add(count).ok_or(PacketError::Truncated)?;
        let taken = self.packet.get(self.at..end).ok_or(PacketError::Truncated)?;
        self.at = end;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, PacketError> {
        let taken = self.take(2)?;
        Ok(u16::from_be_bytes([taken[0], taken[1]]))
    }

    fn u32(&mut self) -> Result<u32, PacketError> {
        let taken = self.take(4)?;
        Ok(u32::from_be_bytes([taken[0], taken[1], taken[2], taken[3]]))
    }

    /// Reads a name, and follows its pointers. Each one leads further back than the last, so there is an end.
    fn name(&mut self) -> Result<Name<'a>, PacketError> {
        let mut labels = Vec::new();
        let mut bytes = 0;
        // Where the name began that is read now, and where reading goes on once it is whole.
        let (mut from, mut after) = (self.at, None);
        loop {
            let length = self.take(1)?[0];
            match length {
                0 => break,
                1..=LABEL_BYTES_MAX => {
                    bytes += usize::from(length) + 1;
                    if bytes > NAME_BYTES_MAX {
                        return Err(PacketError::Name);
                    }
                    labels.push(self.take(usize::from(length))?);
                }
                POINTER.. => {
                    let low = self.take(1)?[0];
                    let to = usize::from(u16::from_be_bytes([length & !POINTER, low]));
                    if to >= from {
                        return Err(PacketError::Name);
                    }
                    after.get_or_insert(self.at);
                    (from, self.at) = (to, to);
                }
                _ => return Err(PacketError::Name),
            }
        }
        self.at = after.unwrap_or(self.at);
        Ok(Name(labels))
    }

    /// Reads one record: its text, if it is the TXT record of an instance of the service.
    fn record(&mut self) -> Result<Option<Text>, PacketError> {
        let name = self.name()?;
        let (kind, class) = (self.u16()?, self.u16()?);
        let ttl_s = self.u32()?;
        let length = self.u16()?;
        let mut rdata = Reader { packet: self.take(usize::from(length))?, at: 0 };
        let is_ours = kind == TYPE_TXT && class & !CACHE_FLUSH == CLASS_IN && name.of_service() == Some(1);
        if !is_ours {
            return Ok(None);
        }
        let mut strings = Vec::new();
        while rdata.at < rdata.packet.len() {
            let length = rdata.take(1)?[0];
            strings.push(rdata.take(usize::from(length))?.to_vec());
        }
        Ok(Some(Text { ttl_s, strings }))
    }
}

/// The labels of a name.
struct Name<'a>(Vec<&'a [u8]>);

impl Name<'_> {
    /// How many labels stand before the service's, if it ends with those.
    fn of_service(&self) -> Option<usize> {
        let before = self.0.len().checked_sub(SERVICE.len())?;
        let is_it =
            self.0[before..].iter().zip(SERVICE).all(|(is, be)| is.eq_ignore_ascii_case(be.as_bytes()));
        is_it.then_some(before)
    }
}

fn header(packet: &mut Vec<u8>, flags: u16, [questions, answers]: [u16; 2]) {
    for field in [0, flags, questions, answers, 0, 0] {
        packet.extend_from_slice(&field.to_be_bytes());
    }
}

fn name(packet: &mut Vec<u8>, labels: &[&str]) {
    for label in labels {
        // Labels are ours: a fixed text, a hash or an agent.
        debug_assert!((1..=usize::from(LABEL_BYTES_MAX)).contains(&label.len()));
        string_of(packet, label.as_bytes());
    }
    packet.push(0);
}

/// A length byte, and that many bytes; what is longer than 255 is cut.
fn string_of(packet: &mut Vec<u8>, string: &[u8]) {
    let length = u8::try_from(string.len()).unwrap_or(u8::MAX);
    packet.push(length);
    packet.extend_from_slice(&string[..usize::from(length)]);
}

fn record(
    packet: &mut Vec<u8>,
    labels: &[&str],
    (kind, class, ttl_s): (u16, u16, u32),
    rdata: impl FnOnce(&mut Vec<u8>),
) {
    name(packet, labels);
    packet.extend_from_slice(&kind.to_be_bytes());
    packet.extend_from_slice(&class.to_be_bytes());
    packet.extend_from_slice(&ttl_s.to_be_bytes());
    let at = packet.len();
    packet.extend_from_slice(&[0; 2]);
    rdata(packet);
    let length = u16::try_from(packet.len() - at - 2).unwrap_or(u16::MAX);
    packet[at..at + 2].copy_from_slice(&length.to_be_bytes());
}

/// The service: its instances are the registrations of sidecars.
pub(super) const SERVICE: [&str; 3] = ["_capd", "_udp", "local"];
/// The longest message of mDNS. **Source:** RFC 6762 section 17, less the headers of IP and UDP.
pub(super) const PACKET_BYTES_MAX: usize = 8_972;
/// Room for a usual announcement.
const PACKET_BYTES_USUAL: usize = 1_400;

const TYPE_A: u16 = 1;
const TYPE_PTR: u16 = 12;
const TYPE_TXT: u16 = 16;
const TYPE_SRV: u16 = 33;
const TYPE_ANY: u16 = 255;
const CLASS_IN: u16 = 1;
/// The record replaces all others of its name and type. **Source:** RFC 6762 section 10.2.
const CACHE_FLUSH: u16 = 0x8000;
const FLAG_RESPONSE: u16 = 0x8000;
/// A response with authority.
const FLAGS_RESPONSE: u16 = 0x8400;
/// Opcode and response code, which are zero in mDNS.
const FLAGS_NOT_OURS: u16 = 0x780f;
/// The first byte of a pointer has both of these bits.
const POINTER: u8 = 0xc0;
const LABEL_BYTES_MAX: u8 = 63;
const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn instance() -> Instance {
        Instance {
            label: "3f".repeat(16),
            host: "z6MkrpxxsGF1ezs1AtE6Uu7Zc7meiAc5yqAN92Vx8ZtVt4ZH".to_owned(),
            address: Some(Ipv4Addr::LOCALHOST),
            port: 7001,
            strings: vec![b"txtvers=1".to_vec(), vec![0xff; 255], Vec::new()],
        }
    }

    /// A response with one record of the service's, whose name is written by the test.
    fn response(count: u16, name: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        header(&mut packet, FLAGS_RESPONSE, [0, count]);
        packet.extend_from_slice(name);
        packet.extend_from_slice(rest);
        packet
    }

    #[test]
    fn an_announcement_reads_back_with_its_strings_and_lifetime() {
        for ttl_s in [0, 30, u32::MAX] {
            let text = Text { ttl_s, strings: instance().strings };
            assert_eq!(decode(&announcement(&instance(), ttl_s)), Ok(Message::Response(vec![text])));
        }
    }

    #[test]
    fn a_query_is_one_for_the_service_and_others_are_not() {
        assert_eq!(decode(&query()), Ok(Message::Query(true)));
        let mut other = query();
        let at = other.windows(5).position(|bytes| bytes == b"_capd").unwrap();
        other[at + 1] = b'x';
        assert_eq!(decode(&other), Ok(Message::Query(false)));
        other[at..at + 5].copy_from_slice(b"_CAPD");
        assert_eq!(decode(&other), Ok(Message::Query(true)), "names have no case");
    }

    #[test]
    fn every_truncation_is_refused() {
        for packet in [query(), announcement(&instance(), 30)] {
            for length in 0..packet.len() {
                assert_eq!(decode(&packet[..length]), Err(PacketError::Truncated), "{length}");
            }
        }
    }

    #[test]
    fn a_name_that_points_at_itself_forward_or_in_a_circle_is_refused() {
        let to = |at: u16| (0xc000 | at).to_be_bytes();
        let circle = [&b"\x01a"[..], &to(14), &to(12)].concat();
        for name in [to(12).to_vec(), to(14).to_vec(), to(0x3fff).to_vec(), circle] {
            assert_eq!(decode(&response(1, &name, &[0; 64])), Err(PacketError::Name), "{name:?}");
        }
        // Kinds of labels that nobody uses.
        for label in [0x40, 0x80, 0xbf] {
            assert_eq!(decode(&response(1, &[label], &[0; 300])), Err(PacketError::Name));
        }
    }

    #[test]
    fn a_pointer_back_to_an_earlier_name_is_followed() {
        let mut packet = announcement(&instance(), 7);
        packet[7] = 1;
        // PTR alone is left of it; a TXT record follows whose name is that of the PTR record's target.
        let target = 12 + SERVICE.iter().map(|label| label.len() + 1).sum::<usize>() + 1 + 10;
        packet.truncate(target + 1 + 32 + SERVICE.iter().map(|label| label.len() + 1).sum::<usize>() + 1);
        packet[7] = 2;
        packet.extend_from_slice(&(0xc000 | target as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 16, 0x80, 1, 0, 0, 0, 9, 0, 2, 1, b'x']);
        let text = Text { ttl_s: 9, strings: vec![b"x".to_vec()] };
        assert_eq!(decode(&packet), Ok(Message::Response(vec![text])));
    }

    #[test]
    fn a_name_past_255_bytes_is_refused() {
        let label = [&[63][..], &[b'a'; 63]].concat();
        let fits = |count: usize| [label.repeat(count), vec![0], vec![0; 10]].concat();
        assert_eq!(decode(&response(1, &fits(3), &[])), Ok(Message::Response(Vec::new())));
        assert_eq!(decode(&response(1, &fits(4), &[])), Err(PacketError::Name));
    }

    #[test]
    fn counts_that_promise_more_than_there_is_end_with_the_packet() {
        let mut packet = query();
        packet[4..12].fill(0xff);
        assert_eq!(decode(&packet), Err(PacketError::Truncated));
        let mut packet = announcement(&instance(), 30);
        packet[6..8].fill(0xff);
        assert_eq!(decode(&packet), Err(PacketError::Truncated));
    }

    #[test]
    fn a_string_that_is_longer_than_its_record_is_refused() {
        let mut name = Vec::new();
        super::name(&mut name, &["a", SERVICE[0], SERVICE[1], SERVICE[2]]);
        let text = |rdata: &[u8]| {
            let fixed = [0, 16, 0, 1, 0, 0, 0, 1, 0, rdata.len() as u8];
            decode(&response(1, &name, &[&fixed[..], rdata, &[0; 32]].concat()))
        };
        assert_eq!(text(&[2, b'x']), Err(PacketError::Truncated));
        assert!(matches!(text(&[1, b'x']), Ok(Message::Response(texts)) if texts.len() == 1));
    }

    #[test]
    fn messages_of_other_kinds_are_refused() {
        for (at, bits) in [(2, 0x08), (3, 0x03)] {
            let mut packet = query();
            packet[at] |= bits;
            assert_eq!(decode(&packet), Err(PacketError::Kind));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic_or_allocate_more_than_came(
            bytes in proptest::collection::vec(any::<u8>(), 0..1_500),
        ) {
            if let Ok(Message::Response(texts)) = decode(&bytes) {
                let read: usize = texts.iter().flat_map(|text| &text.strings).map(Vec::len).sum();
                prop_assert!(read <= bytes.len());
            }
        }

        #[test]
        fn no_changed_byte_of_a_sound_message_makes_the_reader_panic(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut packet = announcement(&instance(), 30);
            for (at, byte) in changes {
                let at = at.index(packet.len());
                packet[at] = byte;
            }
            drop(decode(&packet));
        }
    }
}
