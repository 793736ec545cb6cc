// Package segmentpb has the messages in the footers of segment files, generated from segment.proto. Field numbers never
// change.
package segmentpb

//go:generate go run -modfile=../../../.ci/tools.mod ../../../.ci/protoc -modfile ../../../.ci/tools.mod segment.proto
