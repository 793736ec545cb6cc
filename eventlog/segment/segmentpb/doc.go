// Package segmentpb has the messages in the footers of segment files, generated from segment.proto. Field numbers never
// change.
package segmentpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative segment.proto
