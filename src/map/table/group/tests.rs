use super::*;

#[test]
fn a_group_is_one_cache_line() {
    #[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
    assert_eq!(size_of::<Group<u64, u64>>(), 64);
}

#[test]
fn a_tag_is_never_zero_and_survives_the_round_trip() {
    let node = ptr::without_provenance_mut::<Node<u8, u8>>(0x7fff_1234_5678_u64 as usize);
    for hash in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
        let word = tagged(node, hash);
        assert_eq!(tag_of(word), tag(hash));
        assert!(is_node(word) && !is_link(word));
        assert_eq!(untagged(word), node);
        assert_eq!(node_tagged(word, tag(hash)), Some(node));
        for other in [
            tag(hash) ^ 1,
            tag(hash) ^ MARK >> 1,
            TAG_MASK ^ tag(hash) | MARK,
        ] {
            assert_eq!(node_tagged::<u8, u8>(word, other), None);
        }
    }
}

#[test]
fn a_link_is_no_node() {
    let at = 0x7fff_1234_5640_u64 as usize;
    let group = ptr::without_provenance_mut::<Group<u8, u8>>(at);
    let word = link(group);
    assert!(is_link(word) && !is_node(word));
    assert_eq!(linked(word), group);
    for tag in [MARK, MARK | 1, TAG_MASK] {
        assert_eq!(node_tagged::<u8, u8>(word, tag), None);
        assert_eq!(node_tagged::<u8, u8>(EMPTY, tag), None);
    }
    assert!(!is_node(EMPTY));
}

#[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
mod tag_tests {
    use super::*;
    use proptest::prelude::*;

    fn group(words: [Word; WORDS]) -> Group<u8, u8> {
        Group {
            words: words.map(AtomicU64::new),
            nodes: PhantomData,
        }
    }

    proptest! {
        #[test]
        fn every_word_with_the_tag_is_found_and_no_other(
            tags in prop::array::uniform8(prop_oneof![
                Just(0u16), Just(0x8000), Just(0x8001), Just(0xffff), Just(0x7fff), any::<u16>()
            ]),
            lower in prop::array::uniform8(any::<u64>()),
            sought in prop_oneof![Just(0x8000u16), Just(0x8001), Just(0xffff), 0x8000u16..],
        ) {
            let words = std::array::from_fn(|i| Word::from(tags[i]) << 48 | lower[i] >> 16);
            let group = group(words);
            let cut = |tag: u16| Word::from(tag) & TAG_MASK;
            let expected: Vec<usize> = (0..WORDS).filter(|&i| cut(tags[i]) == cut(sought)).collect();
            let found: Vec<usize> = words_with_tag(&group, cut(sought)).collect();
            prop_assert_eq!(&found, &expected);
            let plain: Vec<usize> = positions(one_by_one(&group, cut(sought))).collect();
            prop_assert_eq!(plain, expected);
        }
    }
}
