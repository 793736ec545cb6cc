package read

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/call/wire"
	"stele.dev/stele/core/object/table"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// writeAtOnce is about how many bytes of a list are written to the connection at a time. A list that is shorter has a known
// length, and is not compressed.
const writeAtOnce = negotiate.CompressFrom

// convertedAtOnce is how many objects are converted before other requests run. Without that, a long list would keep its
// processor for 10 milliseconds at a time, and small requests would wait for all lists that run.
const convertedAtOnce = 8

// listBuffers are *[]byte. They can be reused after each Write, because the connection has copied or sent the bytes.
var listBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, writeAtOnce+4096)
	return &b
}}

// items is a list that is being answered: its format, its objects, and how each is written.
type items struct {
	c      *call.Call
	f      negotiate.Format
	found  []*objects.Object
	in     versions.Items
	empty  []byte // the list without items, in JSON
	field  string // the name of the items in it
	append func(to, json []byte) ([]byte, error)
	texts  [][]byte // the objects in the version of the request, if they had to be converted; else nil
	room   *room
}

// json returns the JSON of an object of the list.
func (l *items) json(i int) []byte {
	if l.texts != nil {
		return l.texts[i]
	}
	return l.found[i].JSON
}

// AnswerList answers with a list of objects that were made for it. It writes the list item by item, so that an answer takes
// little memory however long it is.
func (rd *Reader) AnswerList(c *call.Call, f negotiate.Format, meta metav1.ListMeta, found []*objects.Object) error {
	return rd.AnswerFound(c, &Found{Meta: meta, Objects: found, format: f, room: &room{memory: rd.Memory}})
}

// AnswerFound answers with a list that [Reader.FindPage] has found.
func (rd *Reader) AnswerFound(c *call.Call, list *Found) error {
	f, meta, found := list.format, list.Meta, list.Objects
	in := versions.Items{Version: c.ShownVersion(), Untyped: c.Kind.Kind.Builtin && f.As == negotiate.Whole && f.MediaType != negotiate.Protobuf}
	l := &items{c: c, f: f, found: found, in: in, field: "items", room: list.room}
	if f.As == negotiate.Metadata && !f.List {
		return status.NotAcceptable("you requested PartialObjectMetadata, but the requested object is a list (%s)", c.GoType("List"))
	}
	if err := l.fitRoom(); err != nil {
		return err
	}
	if in.Converting() && f.As != negotiate.Metadata { // before anything is sent: an error is then the answer
		var err error
		if l.texts, err = rd.convertAll(c, in.Version, found); err != nil {
			return err
		}
	}
	kind, version := c.Kind.Kind.ListKind, c.Kind.GroupVersionKind().GroupVersion().String()
	l.append = in.Append
	switch f.As {
	case negotiate.Table:
		return rd.answerTable(l, meta)
	case negotiate.Metadata:
		kind, version = "PartialObjectMetadataList", "meta.k8s.io/"+f.AsVersion
		l.append = func(to, json []byte) ([]byte, error) {
			return append(to, table.Metadata(json, f.AsVersion)...), nil
		}
	}
	if f.MediaType == negotiate.Protobuf {
		return l.answerProtobuf(kind, version, meta)
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	l.empty = fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[]}`, kind, version, text)
	return l.answer()
}

// length returns the length of all items in JSON.
func (l *items) length() (n int) {
	for i := range l.found {
		n += l.in.Len(l.json(i))
	}
	return n
}

// answerTable answers with the list as a table.
func (rd *Reader) answerTable(l *items, meta metav1.ListMeta) error {
	o, err := call.TableOptions(l.c, l.f)
	if err != nil {
		return err
	}
	printer := rd.Surface.Printer(l.c)
	l.field = "rows"
	if l.empty, err = printer.Table(o, meta, nil); err != nil {
		return err
	}
	l.append = func(to, json []byte) ([]byte, error) {
		text, err := l.in.Of(json)
		if err != nil {
			return to, err
		}
		row, err := printer.Row(o, text)
		return append(to, row...), err
	}
	return l.answer()
}

// answer writes the list.
func (l *items) answer() error {
	if len(l.found) == 0 {
		return l.c.WriteBody(l.f, http.StatusOK, l.empty)
	}
	frame, err := wire.NewFrame(l.f.MediaType, l.f.Pretty, l.empty, l.field, len(l.found))
	if err != nil {
		return err
	}
	asStored := l.f.MediaType == negotiate.JSON && !l.f.Pretty
	var to io.WriteCloser
	if asStored && l.f.As == negotiate.Whole { // its length is known
		to = l.open(len(frame.Head) + (len(l.found)-1)*len(frame.Between) + l.length() + len(frame.Tail))
		if l.c.HTTP.Method == http.MethodHead {
			_ = to.Close()
			return nil
		}
	}
	pooled := listBuffers.Get().(*[]byte)
	buffer := append((*pooled)[:0], frame.Head...)
	defer func() {
		if cap(buffer) <= 4*writeAtOnce { // a large object has made it larger: do not keep it
			*pooled = buffer
			listBuffers.Put(pooled)
		}
	}()
	var text []byte
	for i := range l.found {
		if i > 0 {
			buffer = append(buffer, frame.Between...)
		}
		if asStored {
			buffer, err = l.append(buffer, l.json(i))
		} else if text, err = l.append(text[:0], l.json(i)); err == nil {
			var item []byte
			item, err = frame.Item(text)
			buffer = append(buffer, item...)
		}
		if err != nil {
			return l.failed(err)
		}
		if len(buffer) < writeAtOnce {
			continue
		}
		if to == nil {
			to = l.open(-1)
		}
		if _, err := to.Write(buffer); err != nil {
			break // the client has disconnected
		}
		buffer = buffer[:0]
		runtime.Gosched() // other requests run between the parts of a long list
	}
	buffer = append(buffer, frame.Tail...)
	if to == nil {
		to = l.open(len(buffer))
	}
	_, _ = to.Write(buffer)
	_ = to.Close()
	return nil
}

// open sends the header of the answer.
func (l *items) open(length int) io.WriteCloser {
	contentType := l.f.MediaType
	if l.f.As == negotiate.Table || l.f.Pretty || contentType == negotiate.YAML {
		contentType = l.f.ContentType()
	}
	return l.c.Open(contentType, http.StatusOK, length)
}

// failed returns the error of an item that cannot be encoded. If the answer has begun, it ends the connection, so that the
// client does not take the part for the whole.
func (l *items) failed(err error) error {
	if l.c.Sent {
		panic(http.ErrAbortHandler)
	}
	return err
}

// answerProtobuf answers with the list in Protocol Buffers.
func (l *items) answerProtobuf(kind, version string, meta metav1.ListMeta) error {
	list, err := wire.NewList(kind, version, meta, l.length())
	if err != nil {
		return err
	}
	var text []byte
	for i := range l.found {
		if text, err = l.append(text[:0], l.json(i)); err == nil {
			err = list.Add(text)
		}
		if err != nil {
			return err
		}
		if i%convertedAtOnce == 0 {
			runtime.Gosched()
		}
	}
	length, write := list.Encoded()
	to := l.c.Open(l.f.MediaType, http.StatusOK, length)
	_ = write(to) // on an error, the client has disconnected
	_ = to.Close()
	return nil
}
