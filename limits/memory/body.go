package memory

import (
	"context"
	"io"
)

// Body returns a body that takes shares until the context ends: in its method Begin for its length, and in its
// method Decode for what it takes when it is decoded. length is the announced length, or -1. Both return the errors of
// [Guard.Take]. How many values a body is taken to have depends on its Content-Type.
func (g *Guard) Body(ctx context.Context, body io.ReadCloser, length int64, contentType string) io.ReadCloser {
	return g.body(ctx, body, length, contentType, func() {})
}

// ArrivingBody is [Guard.Body] for a body of HTTP/2. It takes the share of [Guard.Arrive] at once, until the body has been
// read or the context ends, and returns its error.
func (g *Guard) ArrivingBody(ctx context.Context, body io.ReadCloser, length int64, contentType string) (io.ReadCloser, error) {
	if body == nil || length >= 0 && length <= Small {
		return body, nil
	}
	arrived, err := g.Arrive(length)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, arrived)
	return g.body(ctx, body, length, contentType, arrived), nil
}

func (g *Guard) body(ctx context.Context, body io.ReadCloser, length int64, contentType string, arrived func()) io.ReadCloser {
	if body == nil || length >= 0 && length <= Small {
		return body
	}
	if length < 0 || length > g.maxBody {
		length = g.maxBody
	}
	return &counted{ReadCloser: body, guard: g, ctx: ctx, length: length, arrived: arrived, values: values{encoding: encodingOf(contentType)}}
}

// SetOwner sets the user who sends a body of [Guard.Body] or [Guard.ArrivingBody]. Users take turns. It must be called before the body
// is read, and does nothing for other bodies.
func SetOwner(body io.ReadCloser, owner string) {
	if c, ok := body.(*counted); ok {
		c.owner = owner
	}
}

// counted is a body that takes shares. It is for one goroutine.
type counted struct {
	io.ReadCloser
	guard  *Guard
	ctx    context.Context // of the request
	owner  string          // "" if it is not known
	length int64
	read   int64
	values values
	begun  bool
	// arrived frees the share of what arrived before it was read.
	arrived func()
}

// Begin takes the share for reading, before a buffer for the body is made. Read does the same if Begin was not called.
func (c *counted) Begin() error {
	if c.begun {
		return nil
	}
	err := c.take(Reading, c.length)
	c.begun = err == nil
	return err
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	if err := c.Begin(); err != nil {
		return 0, err
	}
	n, err := c.ReadCloser.Read(p)
	if err != nil {
		c.arrived()
	}
	c.read += int64(n)
	c.values.add(p[:n])
	return n, err
}

// Decode takes the share for decoding what has been read. It is called once.
func (c *counted) Decode() error {
	if c.read <= Small {
		return nil
	}
	return c.take(Decoding, c.values.decoded(c.read))
}

// take takes a share until the context ends.
func (c *counted) take(k Kind, n int64) error {
	done, err := c.guard.takeFor(c.ctx, c.owner, k, n)
	if err == nil {
		context.AfterFunc(c.ctx, done)
	}
	return err
}
