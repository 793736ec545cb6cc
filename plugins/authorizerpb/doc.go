// Package authorizerpb is the protocol between stele and its authorizer plugins: the
// messages and the service of authorizer.proto, generated, and how the two processes
// find each other.
package authorizerpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative authorizer.proto
