// Package negotiate decides in which form a client gets its answer, from the Accept
// header, and in which it sent its body, by k8s.io/apiserver's own rules.
package negotiate

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
)

// Media types.
const (
	JSON = runtime.ContentTypeJSON
	YAML = runtime.ContentTypeYAML
	// Protobuf is how typed clients exchange built-in kinds.
	Protobuf = runtime.ContentTypeProtobuf
	// CBOR is what kube-apiserver has behind a gate (KEP-4222).
	CBOR = runtime.ContentTypeCBOR
)

// As is what becomes of the objects in an answer.
type As uint8

// Forms of objects.
const (
	Whole    As = iota
	Table       // metav1.Table
	Metadata    // metav1.PartialObjectMetadata, or a list of it
)

// Format is how an answer is to be encoded.
type Format struct {
	MediaType string
	As        As
	// List tells that what is wanted is a list of it: PartialObjectMetadataList.
	List bool
	// AsVersion is the version of meta.k8s.io in which As is wanted.
	AsVersion string
	Pretty    bool
	// suffix follows the media type in the header, where what it is of stands there as well.
	suffix string
}

// ContentType is that of the answer.
func (f Format) ContentType() string { return f.MediaType + f.suffix }

// offered are the encodings, in the order in which clients are told of them. All but YAML can be
// streamed.
var offered = []runtime.SerializerInfo{
	{MediaType: JSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true, StreamSerializer: &runtime.StreamSerializerInfo{}},
	{MediaType: YAML, MediaTypeType: "application", MediaTypeSubType: "yaml", EncodesAsText: true},
	{MediaType: Protobuf, MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf", StreamSerializer: &runtime.StreamSerializerInfo{}},
	{MediaType: CBOR, MediaTypeType: "application", MediaTypeSubType: "cbor", StreamSerializer: &runtime.StreamSerializerInfo{}},
}

// Answers and Streams are the media types of answers and of watches, in the order in which they are
// listed. Callers MUST NOT modify them.
var (
	Answers = []string{JSON, YAML, Protobuf, CBOR}
	Streams = []string{JSON + watches, Protobuf + watches, runtime.ContentTypeCBORSequence}
)

const watches = ";stream=watch"

// StreamType is the Content-Type of a stream of events.
func (f Format) StreamType() string {
	switch f.MediaType {
	case Protobuf:
		return Protobuf + watches
	case CBOR:
		return runtime.ContentTypeCBORSequence
	}
	return f.MediaType
}

// endpoint says what an endpoint can do: turn objects into something else, and encode whole
// ones as Protocol Buffers.
type endpoint struct{ transforms, protobuf bool }

func (e endpoint) AllowsMediaTypeTransform(_, subtype string, target *schema.GroupVersionKind) bool {
	if target == nil {
		return e.protobuf || subtype != "vnd.kubernetes.protobuf"
	}
	if !e.transforms || target.Group != metav1.GroupName || target.Version != "v1" && target.Version != "v1beta1" {
		return false
	}
	switch asOf(target.Kind) {
	case Table:
		return subtype == "json" || subtype == "yaml"
	case Metadata:
		return true
	}
	return false
}
func (e endpoint) AllowsServerVersion(v string) bool     { return e.transforms && v == "v1" }
func (e endpoint) AllowsStreamSchema(schema string) bool { return schema == "watch" }

func asOf(kind string) As {
	switch kind {
	case "Table":
		return Table
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return Metadata
	}
	return Whole
}

// Object negotiates an answer that holds objects. protobuf tells whether their kind has that form.
func Object(r *http.Request, protobuf bool) (Format, error) {
	return negotiate(r, endpoint{transforms: true, protobuf: protobuf})
}

// Streams refuses a form in which there is no stream of events.
func (f Format) Streams() error {
	if f.MediaType == YAML {
		return negotiation.NewNotAcceptableError(Streams)
	}
	return nil
}

// Discovery negotiates an answer of discovery, in its plain form or, where there is one, its aggregated form.
func Discovery(r *http.Request, aggregates bool) (f Format, aggregated bool, err error) {
	header := r.Header.Get("Accept")
	if aggregates && strings.Contains(header, aggregatedKind) {
		o, ok := negotiation.NegotiateMediaTypeOptions(header, offered, discoveryEndpoint{})
		if ok && o.Convert != nil {
			f := Format{MediaType: o.Accepted.MediaType, suffix: ";g=" + o.Convert.Group + ";v=" + o.Convert.Version + ";as=" + o.Convert.Kind}
			f.Pretty = f.MediaType == JSON && (o.Pretty || wantsPretty(r))
			return f, true, nil
		}
	}
	f, err = Plain(r)
	return f, false, err
}

const aggregatedKind = "APIGroupDiscoveryList"

type discoveryEndpoint struct{ endpoint }

func (discoveryEndpoint) AllowsMediaTypeTransform(_, _ string, target *schema.GroupVersionKind) bool {
	return target != nil && *target == schema.GroupVersionKind{Group: "apidiscovery.k8s.io", Version: "v2", Kind: aggregatedKind}
}

// Plain negotiates an answer about something else than objects, and those that report errors.
func Plain(r *http.Request) (Format, error) {
	return negotiate(r, endpoint{protobuf: true})
}

// Untyped negotiates an answer that is no object of a kind either, and has no Protocol Buffers.
func Untyped(r *http.Request) (Format, error) {
	return negotiate(r, endpoint{})
}

func negotiate(r *http.Request, e endpoint) (Format, error) {
	header := r.Header.Get("Accept")
	f := Format{MediaType: JSON}
	if header != "" && header != JSON && header != "*/*" {
		o, ok := negotiation.NegotiateMediaTypeOptions(header, offered, e)
		if !ok {
			return Format{}, negotiation.NewNotAcceptableError(Answers)
		}
		f.MediaType, f.Pretty = o.Accepted.MediaType, o.Pretty
		if o.Convert != nil {
			f.As, f.List, f.AsVersion = asOf(o.Convert.Kind), strings.HasSuffix(o.Convert.Kind, "List"), o.Convert.Version
		}
	}
	f.Pretty = f.MediaType == JSON && (f.Pretty || wantsPretty(r))
	return f, nil
}

// wantsPretty: as upstream, people with browsers and curl do.
func wantsPretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if p := r.URL.Query().Get("pretty"); p != "" {
			pretty, _ := strconv.ParseBool(p)
			return pretty
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// Body returns the media type of a request's body; without a header it is JSON. Those that are
// supported are all, unless some are given.
func Body(r *http.Request, supported ...string) (string, error) {
	if len(supported) == 0 {
		supported = Answers
	}
	header := r.Header.Get("Content-Type")
	if header == "" {
		return JSON, nil
	}
	mediaType, _, err := mime.ParseMediaType(header)
	if err != nil || !slices.Contains(supported, mediaType) {
		return "", negotiation.NewUnsupportedMediaTypeError(supported)
	}
	return mediaType, nil
}

// CompressFrom is how long an answer must be to be worth compressing, as upstream has it.
const CompressFrom = 128 << 10

// Gzip tells whether the client takes an answer that is compressed so.
func Gzip(r *http.Request) bool {
	for clause := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(clause, ";")
		if strings.TrimSpace(name) == "gzip" {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(quality), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}
