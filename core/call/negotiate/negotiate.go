// Package negotiate chooses the format of an answer from the Accept header, and reads the format of a body from the
// Content-Type header, by k8s.io/apiserver's rules.
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

// These are the media types of objects.
const (
	JSON = runtime.ContentTypeJSON
	YAML = runtime.ContentTypeYAML
	// Protobuf is the format of built-in kinds for typed clients.
	Protobuf = runtime.ContentTypeProtobuf
	// CBOR is behind a feature gate in kube-apiserver (KEP-4222).
	CBOR = runtime.ContentTypeCBOR
)

// As tells how an answer shows objects.
type As uint8

// These are the ways to show objects.
const (
	Whole    As = iota
	Table       // as metav1.Table
	Metadata    // as metav1.PartialObjectMetadata, or a list of it
)

// Format is the format of an answer.
type Format struct {
	MediaType string
	As        As
	// List is true if the client asked for the list type: PartialObjectMetadataList.
	List bool
	// AsVersion is the version of meta.k8s.io for As.
	AsVersion string
	Pretty    bool
	// suffix follows the media type in the Content-Type header: the parameters that name the type.
	suffix string
}

// ContentType returns the Content-Type header of the answer.
func (f Format) ContentType() string { return f.MediaType + f.suffix }

// offered are the encodings, in the order in which clients see them. All except YAML can be streamed.
var offered = []runtime.SerializerInfo{
	{MediaType: JSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true, StreamSerializer: &runtime.StreamSerializerInfo{}},
	{MediaType: YAML, MediaTypeType: "application", MediaTypeSubType: "yaml", EncodesAsText: true},
	{MediaType: Protobuf, MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf", StreamSerializer: &runtime.StreamSerializerInfo{}},
	{MediaType: CBOR, MediaTypeType: "application", MediaTypeSubType: "cbor", StreamSerializer: &runtime.StreamSerializerInfo{}},
}

// Answers and Streams are the media types of answers and of watches, in the order in which errors list them. Callers
// must not change them.
var (
	Answers = []string{JSON, YAML, Protobuf, CBOR}
	Streams = []string{JSON + watches, Protobuf + watches, runtime.ContentTypeCBORSequence}
)

const watches = ";stream=watch"

// StreamType returns the Content-Type header of a stream of events.
func (f Format) StreamType() string {
	switch f.MediaType {
	case Protobuf:
		return Protobuf + watches
	case CBOR:
		return runtime.ContentTypeCBORSequence
	}
	return f.MediaType
}

// endpoint tells what an endpoint supports: showing objects in other ways, and Protocol Buffers.
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

// Object negotiates the format of an answer with objects. protobuf tells whether their kind supports Protocol Buffers.
func Object(r *http.Request, protobuf bool) (Format, error) {
	return negotiate(r, endpoint{transforms: true, protobuf: protobuf})
}

// Streams returns an error if the format cannot be streamed.
func (f Format) Streams() error {
	if f.MediaType == YAML {
		return negotiation.NewNotAcceptableError(Streams)
	}
	return nil
}

// Discovery negotiates the format of a discovery document: plain, or aggregated if that is available.
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

// Plain negotiates the format of an answer without objects, and of errors.
func Plain(r *http.Request) (Format, error) {
	return negotiate(r, endpoint{protobuf: true})
}

// Untyped negotiates the format of an answer that has no kind, and so no Protocol Buffers.
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

// wantsPretty reports whether to indent the answer: as in kube-apiserver, for browsers and curl.
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

// Body returns the media type of a request's body; the default is JSON. If supported is empty, all media types are.
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

// CompressFrom is the size from which answers are compressed, as in kube-apiserver.
const CompressFrom = 128 << 10

// Gzip reports whether the client accepts gzip.
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
