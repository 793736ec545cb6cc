package read

import (
	"context"

	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/limits/memory"
	"stele.dev/stele/projections/objects"
)

// What a list takes of memory while it is written, by its format.
const (
	pointerBytes = 8         // of an object that was found
	gzipBytes    = 800 << 10 // for the compressor
	yamlBytes    = 1 << 20   // for the values and the encoder's buffers
	valueBytes   = 256 << 10 // for the values of an object that is encoded again
)

// room is the share of memory of a list. A list that is small has none. It is for one goroutine.
type room struct {
	memory *memory.Guard
	share  *memory.Share // nil for none
}

// roomFor takes a share of memory for a page, before its objects are collected. How many a selection finds is not known yet:
// the share is for as many as there may be, and made smaller when they have been found.
func (rd *Reader) roomFor(ctx context.Context, c *call.Call, f negotiate.Format, pg *Page, sel *objects.Selection) (*room, error) {
	r := &room{memory: rd.Memory}
	all := pg.state.Total(c.Resource(), sel.Namespace)
	if all.Objects == 0 {
		return r, nil
	}
	n := min(all.Objects, pg.limit)
	bytes := all.Bytes * int64(n) / int64(all.Objects)
	if small(bytes, n) {
		return r, nil
	}
	return r, r.take(ctx, needs(c, f, n, bytes))
}

// small reports whether a list with so many bytes and objects takes no share.
func small(bytes int64, objects int) bool {
	return bytes <= writeAtOnce && pointerBytes*objects <= memory.Small
}

// needs returns the memory of a list while it is written.
func needs(c *call.Call, f negotiate.Format, objects int, bytes int64) int64 {
	n := int64(pointerBytes*objects + 2*writeAtOnce)
	if negotiate.Gzip(c.HTTP) {
		n += gzipBytes
	}
	switch {
	case f.MediaType == negotiate.Protobuf:
		n += bytes
	case f.MediaType == negotiate.YAML:
		n += yamlBytes
	case f.MediaType == negotiate.CBOR || f.Pretty || f.As != negotiate.Whole:
		n += valueBytes
	}
	return n
}

// take takes the share until the context of the request ends.
func (r *room) take(ctx context.Context, n int64) (err error) {
	if r.share, err = r.memory.Share(ctx, memory.Answers, n); err != nil {
		return err
	}
	context.AfterFunc(ctx, r.share.Free)
	return nil
}

// fitRoom makes the share as large as the list that was found.
func (l *items) fitRoom() error {
	r, bytes := l.room, int64(0)
	if r.share == nil || l.f.MediaType == negotiate.Protobuf {
		bytes = int64(l.length())
	}
	n := needs(l.c, l.f, cap(l.found), bytes)
	if l.in.Converting() && l.f.As != negotiate.Metadata {
		if bytes == 0 {
			bytes = int64(l.length())
		}
		n += bytes
	}
	switch {
	case r.share != nil:
		r.share.Fit(n)
	case !small(bytes, cap(l.found)):
		return r.take(l.c.HTTP.Context(), n)
	}
	return nil
}
