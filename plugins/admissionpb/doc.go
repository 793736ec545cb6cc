// Package admissionpb is the protocol between stele and its admission plugins: the messages and the service generated
// from admission.proto. The handshake is that of package authorizerpb.
package admissionpb

//go:generate protoc -I . -I ../authorizerpb --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative admission.proto

// PluginName is the name of the service for go-plugin.
const PluginName = "admission"
