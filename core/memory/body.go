package memory

import (
	stdbytes "bytes"
	"context"
	"io"
)

// Body returns a body that takes shares until the context ends: before the first byte is read for its length, and in its
// method Decode for what it takes when it is decoded. length is the announced length, or -1. Both return the errors of
// [Guard.Take].
func (g *Guard) Body(ctx context.Context, body io.ReadCloser, length int64) io.ReadCloser {
	if body == nil || length >= 0 && length <= Small {
		return body
	}
	if length < 0 || length > g.maxBody {
		length = g.maxBody
	}
	return &counted{ReadCloser: body, guard: g, ctx: ctx, length: length}
}

// counted is a body that takes shares. It is for one goroutine.
type counted struct {
	io.ReadCloser
	guard  *Guard
	ctx    context.Context // of the request
	length int64
	read   int64
	values int64
	begun  bool
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	if !c.begun {
		if err := c.take(Reading, c.length); err != nil {
			return 0, err
		}
		c.begun = true
	}
	n, err := c.ReadCloser.Read(p)
	c.read += int64(n)
	c.values += values(p[:n])
	return n, err
}

// Decode takes the share for decoding what has been read. It is called once.
func (c *counted) Decode() error {
	if c.read <= Small {
		return nil
	}
	return c.take(Decoding, decoded(c.read, c.values))
}

// values returns about how many values a part of a text in JSON or YAML has. In binary encodings it means nothing, and is
// about one in 85 bytes.
func values(text []byte) int64 {
	return int64(stdbytes.Count(text, comma) + stdbytes.Count(text, newLine))
}

var comma, newLine = []byte{','}, []byte{'\n'}

// decoded returns about how many bytes a body takes while it is decoded, validated and answered: several copies of its text,
// and its values with their names in maps and sets of fields.
func decoded(length, values int64) int64 { return 4*length + 600*values }

// take takes a share until the context ends.
func (c *counted) take(k Kind, n int64) error {
	done, err := c.guard.Take(c.ctx, k, n)
	if err == nil {
		context.AfterFunc(c.ctx, done)
	}
	return err
}
