package chaos

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/flatline-chaos/flatline/pkg/observe"
	"github.com/flatline-chaos/flatline/pkg/timeline"
)

// An authority signs client certificates with the cluster's own CA. The CA's key
// is read from the control-plane node into this process's memory and nowhere
// else.
type authority struct {
	cert   *x509.Certificate
	key    crypto.Signer
	offset time.Duration // of the clock by which its certificates are read
}

// readAuthority reads /etc/kubernetes/pki/ca.crt and ca.key.
func readAuthority(ctx context.Context, controlPlane observe.Node) (*authority, error) {
	var out bytes.Buffer
	if err := controlPlane.Exec(ctx, nil, &out, "cat", "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/ca.key"); err != nil {
		return nil, fmt.Errorf("reading the cluster's CA: %w", err)
	}
	a := &authority{}
	for rest := out.Bytes(); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		var err error
		switch block.Type {
		case "CERTIFICATE":
			a.cert, err = x509.ParseCertificate(block.Bytes)
		case "RSA PRIVATE KEY":
			a.key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			a.key, err = x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			var k any
			if k, err = x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				a.key, _ = k.(crypto.Signer)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("reading the cluster's CA: %w", err)
		}
	}
	if a.cert == nil || a.key == nil {
		return nil, errors.New("reading the cluster's CA: no certificate or no key")
	}
	return a, nil
}

// newAuthority makes one that no cluster knows.
func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a CA: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(10 * 365 * 24 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making a CA: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

// kubeletPEM makes a kubelet's client certificate and key in the form in which
// the kubelet stores them: certificate first, then key (client-go
// util/certificate/certificate_store.go). NotAfter is rounded up to the whole
// second that X.509 can say.
func (a *authority) kubeletPEM(node string, notBefore, notAfter time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key for %s: %w", node, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		NotBefore:    notBefore, NotAfter: notAfter.Add(time.Second - 1).Truncate(time.Second),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate for %s: %w", node, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing a key for %s: %w", node, err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})...), nil
}

// rotateNow makes a certificate that is valid for life and already past its
// rotation deadline, which is 70 to 90 % of the way from NotBefore to NotAfter
// (client-go util/certificate/certificate_manager.go): the kubelet asks for a new
// one as soon as it starts.
func (a *authority) rotateNow(node string, life time.Duration) ([]byte, error) {
	now := time.Now().Add(a.offset)
	return a.kubeletPEM(node, now.Add(-10*life), now.Add(life))
}

// rotateLater makes a certificate that is valid from now on for life: the kubelet
// asks for a new one after 70 to 90 % of it.
func (a *authority) rotateLater(node string, life time.Duration) ([]byte, error) {
	now := time.Now().Add(a.offset)
	return a.kubeletPEM(node, now, now.Add(life))
}

// pkiDir is where a kubelet keeps its client certificates.
const pkiDir = timeline.CertificateFolder

//go:embed install.sh
var installFile string

// installScript makes a staged PEM file the kubelet's current certificate. The
// link is replaced by a rename, so that a plain file in its place goes too, and
// what a kubelet may have left half done is removed.
func installScript(staged, name string) string { return given(installFile, staged, name, pkiDir) }
