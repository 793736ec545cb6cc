// Package wire converts objects between JSON and other formats: YAML, Kubernetes' Protocol Buffers for kinds with a Go
// type, and CBOR (KEP-4222), all by apimachinery's own serializers. Everywhere else an object is JSON. It also frames
// the events of watches as these serializers do.
//
// All functions are safe for concurrent use.
package wire
