package eventlog

import (
	"context"

	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog/logpb"
)

// Tip returns the position after the newest batch. It is linearizable: the position includes every append that was
// acknowledged before the call. It is safe for concurrent use.
func (l *Log) Tip(ctx context.Context) (Head, error) {
	answer, err := l.backend.Read(ctx, ^uint64(0)>>1)
	if err != nil {
		return Head{}, err
	}
	return DecodeHead(answer.Head)
}

// Stored returns batches from revision `from` on as they are stored, in order: at least one if the backend has one.
// Batches that left the backend for the archive are skipped, so the caller MUST check that what it gets continues what
// it has ([Head.Continued]). The values are not checked. It is safe for concurrent use.
func (l *Log) Stored(ctx context.Context, from uint64) ([]Stored, error) {
	answer, err := l.backend.Read(ctx, from)
	return answer.Batches, err
}

// DecodeStored decodes an encoded batch whose place in the log is not known from elsewhere. See [DecodeBatch] for what
// it checks and for its errors.
func DecodeStored(value []byte) (*Batch, error) {
	var stored logpb.Batch
	var header logpb.Header
	if err := proto.Unmarshal(value, &stored); err != nil {
		return nil, &CorruptError{Reason: err.Error()}
	}
	if err := proto.Unmarshal(stored.GetHeader(), &header); err != nil {
		return nil, &CorruptError{Reason: "header: " + err.Error()}
	}
	return DecodeBatch(header.GetFirstRevision(), value)
}

// Continued returns nil if b can be the batch directly after the position, else the reason: [ErrDiverged] or a
// [*CorruptError]. The first batch of a log continues the zero Head with that log's ID.
func (h Head) Continued(b *Batch) error { return follows(h, b) }
