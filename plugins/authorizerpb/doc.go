// Package authorizerpb is the protocol between stele and its authorizer plugins: the messages and the
// service generated from authorizer.proto, and the handshake of the two processes.
package authorizerpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative authorizer.proto
