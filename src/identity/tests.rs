use super::id_of;
use std::any::TypeId;

#[test]
fn a_type_has_one_identity_whatever_its_lifetimes() {
    fn of_borrowed<'a>(_: &'a str) -> TypeId {
        id_of::<&'a str>()
    }
    assert_eq!(id_of::<u8>(), TypeId::of::<u8>());
    let owned = String::from("of a shorter life");
    assert_eq!(of_borrowed(&owned), TypeId::of::<&'static str>());
    assert_ne!(id_of::<u8>(), id_of::<i8>());
}
