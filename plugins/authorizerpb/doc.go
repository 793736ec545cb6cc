// Package authorizerpb is the protocol between stele and its authorizer plugins: the messages and the
// service generated from authorizer.proto, and the handshake of the two processes.
package authorizerpb

//go:generate go run -modfile=../../.ci/tools.mod ../../.ci/protoc -modfile ../../.ci/tools.mod -grpc authorizer.proto
