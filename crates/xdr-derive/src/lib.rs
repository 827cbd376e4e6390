//! Derive macros for the `Encode` and `Decode` traits of `xdr`.
//!
//! - A struct is encoded as its fields in order (RFC 4506 §4.14).
//! - An enum without fields is an XDR enumeration (§4.3). An unknown value is an error.
//! - An enum whose variants have `#[xdr(case = EXPR)]` is a discriminated union (§4.15) with a 32-bit discriminant. EXPR is
//!   a constant that converts with `as u32`; each discriminant needs its own variant. A variant has no field (void) or one.
//!   `#[xdr(default)]` marks the arm of all other discriminants: its first field is the `u32` discriminant, an optional
//!   second field the arm's value.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{Data, DataEnum, DeriveInput, Error, Expr, Fields, Result, Variant, parse_macro_input};

/// Derives `xdr::Encode`; see the crate's documentation.
#[proc_macro_derive(Encode, attributes(xdr))]
pub fn derive_encode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    encode(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Derives `xdr::Decode`; see the crate's documentation.
#[proc_macro_derive(Decode, attributes(xdr))]
pub fn derive_decode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    decode(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// The `#[xdr(…)]` attribute of a variant.
enum Arm {
    Case(Expr),
    Default,
    Plain,
}

fn arm(variant: &Variant) -> Result<Arm> {
    let mut arm = Arm::Plain;
    for attribute in variant.attrs.iter().filter(|a| a.path().is_ident("xdr")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("case") {
                arm = Arm::Case(meta.value()?.parse()?);
                Ok(())
            } else if meta.path.is_ident("default") {
                arm = Arm::Default;
                Ok(())
            } else {
                Err(meta.error("expected `case = …` or `default`"))
            }
        })?;
    }
    Ok(arm)
}

fn is_union(data: &DataEnum) -> Result<bool> {
    for variant in &data.variants {
        if !matches!(arm(variant)?, Arm::Plain) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn wrap(input: &DeriveInput, trait_name: &str, body: Tokens) -> Tokens {
    let name = &input.ident;
    let trait_ident = format_ident!("{trait_name}");
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(syn::parse_quote!(::xdr::#trait_ident));
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics ::xdr::#trait_ident for #name #type_generics #where_clause { #body }
    }
}

fn encode(input: &DeriveInput) -> Result<Tokens> {
    let body = match &input.data {
        Data::Struct(data) => {
            let members = data.fields.members();
            quote!(#(::xdr::Encode::encode(&self.#members, writer);)*)
        }
        Data::Enum(data) if is_union(data)? => encode_union(data)?,
        Data::Enum(_) => quote!(writer.u32(*self as u32);),
        Data::Union(data) => return Err(Error::new_spanned(data.union_token, "use an enum")),
    };
    Ok(wrap(
        input,
        "Encode",
        quote! {
            #[allow(unused_variables)]
            #[inline]
            fn encode(&self, writer: &mut ::xdr::Writer) { #body }
        },
    ))
}

fn encode_union(data: &DataEnum) -> Result<Tokens> {
    let mut arms = Vec::new();
    for variant in &data.variants {
        let ident = &variant.ident;
        let bindings: Vec<_> = (0..variant.fields.len()).map(|i| format_ident!("field{i}")).collect();
        let pattern = match &variant.fields {
            Fields::Unit => quote!(Self::#ident),
            Fields::Unnamed(_) => quote!(Self::#ident(#(#bindings),*)),
            Fields::Named(_) => return Err(Error::new_spanned(variant, "union arms have unnamed fields")),
        };
        arms.push(match arm(variant)? {
            Arm::Case(case) => quote! {
                #pattern => { writer.u32((#case) as u32); #(::xdr::Encode::encode(#bindings, writer);)* }
            },
            Arm::Default => quote!(#pattern => { #(::xdr::Encode::encode(#bindings, writer);)* }),
            Arm::Plain => return Err(Error::new_spanned(variant, "every arm needs `#[xdr(case = …)]`")),
        });
    }
    Ok(quote!(match self { #(#arms)* }))
}

fn decode(input: &DeriveInput) -> Result<Tokens> {
    let body = match &input.data {
        Data::Struct(data) => {
            let members = data.fields.members();
            quote!(::core::result::Result::Ok(Self { #(#members: ::xdr::Decode::decode(reader)?),* }))
        }
        Data::Enum(data) if is_union(data)? => decode_union(input, data)?,
        Data::Enum(data) => decode_enumeration(input, data),
        Data::Union(data) => return Err(Error::new_spanned(data.union_token, "use an enum")),
    };
    Ok(wrap(
        input,
        "Decode",
        quote! {
            #[allow(unused_variables)]
            #[inline]
            fn decode(reader: &mut ::xdr::Reader) -> ::core::result::Result<Self, ::xdr::DecodeError> { #body }
        },
    ))
}

fn invalid(input: &DeriveInput) -> Tokens {
    let name = input.ident.to_string();
    quote!(::core::result::Result::Err(::xdr::DecodeError::InvalidDiscriminant { type_name: #name, value }))
}

fn decode_enumeration(input: &DeriveInput, data: &DataEnum) -> Tokens {
    let variants = data.variants.iter().map(|v| &v.ident);
    let invalid = invalid(input);
    quote! {
        let value = reader.u32()?;
        #(if value == Self::#variants as u32 { return ::core::result::Result::Ok(Self::#variants); })*
        #invalid
    }
}

fn decode_union(input: &DeriveInput, data: &DataEnum) -> Result<Tokens> {
    let mut arms = Vec::new();
    let mut otherwise = invalid(input);
    for variant in &data.variants {
        let ident = &variant.ident;
        match arm(variant)? {
            Arm::Case(case) => {
                let fields = variant.fields.iter().map(|_| quote!(::xdr::Decode::decode(reader)?));
                let value = if variant.fields.is_empty() {
                    quote!(Self::#ident)
                } else {
                    quote!(Self::#ident(#(#fields),*))
                };
                arms.push(quote!(if value == (#case) as u32 { return ::core::result::Result::Ok(#value); }));
            }
            Arm::Default => {
                let rest = variant.fields.iter().skip(1).map(|_| quote!(::xdr::Decode::decode(reader)?));
                otherwise = quote!(::core::result::Result::Ok(Self::#ident(value #(, #rest)*)));
            }
            Arm::Plain => return Err(Error::new_spanned(variant, "every arm needs `#[xdr(case = …)]`")),
        }
    }
    Ok(quote! {
        let value = reader.u32()?;
        #(#arms)*
        #otherwise
    })
}
