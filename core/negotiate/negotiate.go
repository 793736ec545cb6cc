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
	// Protobuf is how typed clients send built-in kinds.
	Protobuf = runtime.ContentTypeProtobuf
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
	// AsVersion is the version of meta.k8s.io in which As is wanted.
	AsVersion string
	Pretty    bool
}

var (
	jsonOnly = []runtime.SerializerInfo{
		{MediaType: JSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true, StreamSerializer: &runtime.StreamSerializerInfo{}},
	}
	jsonAndYAML = append(jsonOnly[:1:1],
		runtime.SerializerInfo{MediaType: YAML, MediaTypeType: "application", MediaTypeSubType: "yaml", EncodesAsText: true})
)

// endpoint says what an endpoint can do beyond plain encodings.
type endpoint struct{ transforms, stream bool }

func (e endpoint) AllowsMediaTypeTransform(_, _ string, target *schema.GroupVersionKind) bool {
	if target == nil {
		return true
	}
	if !e.transforms || target.Group != metav1.GroupName || target.Version != "v1" && target.Version != "v1beta1" {
		return false
	}
	return asOf(target.Kind) != Whole
}
func (e endpoint) AllowsServerVersion(string) bool       { return false }
func (e endpoint) AllowsStreamSchema(schema string) bool { return e.stream && schema == "watch" }

func asOf(kind string) As {
	switch kind {
	case "Table":
		return Table
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return Metadata
	}
	return Whole
}

// Object negotiates an answer that holds objects.
func Object(r *http.Request) (Format, error) {
	return negotiate(r, jsonAndYAML, endpoint{transforms: true})
}

// Stream negotiates a stream of watch events.
func Stream(r *http.Request) (Format, error) {
	return negotiate(r, jsonOnly, endpoint{transforms: true, stream: true})
}

// Discovery negotiates an answer of discovery, in its plain or its aggregated form.
func Discovery(r *http.Request) (f Format, aggregated bool, err error) {
	header := r.Header.Get("Accept")
	if strings.Contains(header, aggregatedKind) {
		o, ok := negotiation.NegotiateMediaTypeOptions(header, jsonAndYAML, discoveryEndpoint{})
		if ok && o.Convert != nil {
			return Format{MediaType: o.Accepted.MediaType, Pretty: o.Pretty}, true, nil
		}
	}
	f, err = Plain(r)
	return f, false, err
}

const aggregatedKind = "APIGroupDiscoveryList"

type discoveryEndpoint struct{ endpoint }

func (discoveryEndpoint) AllowsMediaTypeTransform(_, _ string, target *schema.GroupVersionKind) bool {
	return target == nil || *target == schema.GroupVersionKind{Group: "apidiscovery.k8s.io", Version: "v2", Kind: aggregatedKind}
}

// Plain negotiates an answer about something else than objects.
func Plain(r *http.Request) (Format, error) {
	return negotiate(r, jsonAndYAML, endpoint{})
}

func negotiate(r *http.Request, accepted []runtime.SerializerInfo, e endpoint) (Format, error) {
	header := r.Header.Get("Accept")
	f := Format{MediaType: JSON}
	if header != "" && header != JSON && header != "*/*" {
		o, ok := negotiation.NegotiateMediaTypeOptions(header, accepted, e)
		if !ok {
			supported := make([]string, len(accepted))
			for i, a := range accepted {
				supported[i] = a.MediaType
			}
			return Format{}, negotiation.NewNotAcceptableError(supported)
		}
		f.MediaType, f.Pretty = o.Accepted.MediaType, o.Pretty
		if o.Convert != nil {
			f.As, f.AsVersion = asOf(o.Convert.Kind), o.Convert.Version
		}
	}
	f.Pretty = f.Pretty || wantsPretty(r)
	return f, nil
}

// wantsPretty: as upstream, people with browsers and curl do.
func wantsPretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if p := r.URL.Query().Get("pretty"); p != "" {
			return p == "1" || p == "true"
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// Body returns the media type of a request's body; without a header it is JSON.
func Body(r *http.Request, supported ...string) (string, error) {
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
