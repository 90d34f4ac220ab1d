//! The gRPC service that the comparison calls, as tonic's own generator makes it from Rust types.

fn main() {
    let call = tonic_build::manual::Method::builder()
        .name("call")
        .route_name("Call")
        .input_type("crate::grpc::Payload")
        .output_type("crate::grpc::Payload")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service =
        tonic_build::manual::Service::builder().name("Echo").package("capd.e2e").method(call).build();
    tonic_build::manual::Builder::new().compile(&[service]);
}
