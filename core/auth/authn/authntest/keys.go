package authntest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"time"
)

// Key signs tokens.
type Key struct {
	ID, Algorithm string
	private       crypto.Signer
}

// NewKey returns a new key for RS256 or ES256.
func NewKey(id, algorithm string) *Key {
	k := &Key{ID: id, Algorithm: algorithm}
	var err error
	switch algorithm {
	case "RS256":
		k.private, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ES256":
		k.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		err = fmt.Errorf("authntest: no algorithm %s", algorithm)
	}
	must(err)
	return k
}

// Sign returns a token of the claims. The header has these fields over the usual ones; a nil value removes a field.
func (k *Key) Sign(header, claims map[string]any) string {
	h := map[string]any{"alg": k.Algorithm, "kid": k.ID, "typ": "JWT"}
	maps.Copy(h, header)
	maps.DeleteFunc(h, func(_ string, v any) bool { return v == nil })
	signed := encode(h) + "." + encode(claims)
	return signed + "." + base64.RawURLEncoding.EncodeToString(k.signature(signed))
}

func (k *Key) signature(signed string) []byte {
	digest := sha256.Sum256([]byte(signed))
	if private, ok := k.private.(*ecdsa.PrivateKey); ok {
		r, s, err := ecdsa.Sign(rand.Reader, private, digest[:])
		must(err)
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	signature, err := k.private.Sign(rand.Reader, digest[:], crypto.SHA256)
	must(err)
	return signature
}

// public returns the public key as a JWK (RFC 7517).
func (k *Key) public() map[string]string {
	number := func(n []byte) string { return base64.RawURLEncoding.EncodeToString(n) }
	jwk := map[string]string{"use": "sig", "kid": k.ID, "alg": k.Algorithm}
	switch public := k.private.Public().(type) {
	case *rsa.PublicKey:
		jwk["kty"], jwk["n"], jwk["e"] = "RSA", number(public.N.Bytes()), number(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := public.Bytes() // 4, x, y
		must(err)
		jwk["kty"], jwk["crv"], jwk["x"], jwk["y"] = "EC", "P-256", number(point[1:33]), number(point[33:])
	}
	return jwk
}

// PEM returns the public key as PEM.
func (k *Key) PEM() []byte {
	der, err := x509.MarshalPKIXPublicKey(k.private.Public())
	must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Bad returns invalid tokens for a subject, by the reason. The other issuer is also accepted by the server.
func Bad(i, other *Issuer, subject string) map[string]string {
	key, now := i.Key(), time.Now()
	claims := i.Claims(subject, nil)
	good := key.Sign(nil, claims)
	parts := strings.Split(good, ".")
	join := func(header, payload, signature string) string { return header + "." + payload + "." + signature }
	mac := func(secret []byte) string {
		signed := encode(map[string]any{"alg": "HS256", "kid": key.ID, "typ": "JWT"}) + "." + parts[1]
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(signed))
		return signed + "." + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
	}
	none := func(alg string) string { return encode(map[string]any{"alg": alg, "typ": "JWT"}) + "." + parts[1] }
	return map[string]string{
		"expired":                       i.Token(subject, map[string]any{"exp": now.Add(-time.Minute).Unix()}),
		"never expires":                 i.Token(subject, map[string]any{"exp": nil}),
		"expiry is no number":           i.Token(subject, map[string]any{"exp": "tomorrow"}),
		"not yet valid":                 i.Token(subject, map[string]any{"nbf": now.Add(time.Hour).Unix()}),
		"wrong audience":                i.Token(subject, map[string]any{"aud": "somebody else"}),
		"no audience":                   i.Token(subject, map[string]any{"aud": nil}),
		"wrong issuer":                  i.Token(subject, map[string]any{"iss": "https://nobody.example.com"}),
		"no issuer":                     i.Token(subject, map[string]any{"iss": nil}),
		"name of the other issuer":      i.Token(subject, map[string]any{"iss": other.URL}),
		"key of the other issuer":       other.Key().Sign(map[string]any{"kid": key.ID}, claims),
		"unknown key":                   NewKey("unknown", "ES256").Sign(nil, claims),
		"another key of that name":      NewKey(key.ID, "ES256").Sign(nil, claims),
		"key in the token itself":       embedded(claims),
		"alg none":                      none("none") + ".",
		"alg NoNe":                      none("NoNe") + ".",
		"alg none, with a signature":    none("none") + "." + parts[2],
		"no alg":                        key.Sign(map[string]any{"alg": nil}, claims),
		"another alg":                   key.Sign(map[string]any{"alg": "RS512"}, claims),
		"HS256 with the public key":     mac(key.PEM()),
		"HS256 with the modulus":        mac([]byte(key.public()["n"])),
		"HS256 with nothing":            mac(nil),
		"crit that nobody understands":  key.Sign(map[string]any{"crit": []string{"exp"}}, claims),
		"other claims than were signed": join(parts[0], encode(i.Claims("somebody else", nil)), parts[2]),
		"other header than was signed":  join(encode(map[string]any{"alg": key.Algorithm}), parts[1], parts[2]),
		"no signature":                  join(parts[0], parts[1], ""),
		"half a signature":              join(parts[0], parts[1], parts[2][:len(parts[2])/2]),
		"two parts":                     parts[0] + "." + parts[1],
		"four parts":                    good + "." + parts[2],
		"many parts":                    strings.Repeat(".", 10000),
		"header is no base64":           join("!", parts[1], parts[2]),
		"header is no JSON":             join(base64.RawURLEncoding.EncodeToString([]byte("{")), parts[1], parts[2]),
		"claims are no base64":          join(parts[0], "!", parts[2]),
		"claims are no JSON":            join(parts[0], base64.RawURLEncoding.EncodeToString([]byte("{")), parts[2]),
		"claims are a list":             join(parts[0], base64.RawURLEncoding.EncodeToString([]byte("[]")), parts[2]),
		"signature is no base64":        join(parts[0], parts[1], "!"),
		"padded":                        join(parts[0], parts[1], parts[2]+"=="),
		"JSON instead of compact":       `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"no subject":                    i.Token(subject, map[string]any{"sub": nil}),
		"subject is no string":          i.Token(subject, map[string]any{"sub": 1}),
		"oversized":                     i.Token(subject, map[string]any{"filler": strings.Repeat("x", 100<<10)}),
		"not a JWT":                     "x",
	}
}

// embedded returns a token that contains the key it is signed with (the header jwk).
func embedded(claims map[string]any) string {
	k := NewKey("brought", "ES256")
	return k.Sign(map[string]any{"jwk": k.public()}, claims)
}

func encode(v any) string {
	data, err := json.Marshal(v)
	must(err)
	return base64.RawURLEncoding.EncodeToString(data)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
