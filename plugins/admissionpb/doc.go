// Package admissionpb is the protocol between stele and its admission plugins: the messages and the service generated
// from admission.proto. The handshake is that of package authorizerpb.
package admissionpb

//go:generate go run -modfile=../../.ci/tools.mod ../../.ci/protoc -modfile ../../.ci/tools.mod -grpc -I ../authorizerpb admission.proto

// PluginName is the name of the service for go-plugin.
const PluginName = "admission"
