package report

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What a record says is anybody's text, and where it is shown there are things that obey text:
// terminals, tables, Markdown, XML and the workflow commands of CI. Each target has one function
// here; shown and guard see to it that nothing gets past those for plain text.

// plain makes one line of a text: whatever is no letter, mark, digit, sign or space of its own
// width is written as Go writes it, \n or \x1b or \u202e.
func plain(s string) string {
	if !strings.ContainsFunc(s, odd) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if text := s[i : i+size]; odd(r) {
			b.WriteString(strings.Trim(strconv.QuoteToASCII(text), `"`))
		} else {
			b.WriteString(text)
		}
		i += size
	}
	return b.String()
}

// odd says whether a rune moves, hides or ends text instead of being seen. What is no UTF-8
// comes as RuneError, as does U+FFFD.
func odd(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) }

// Lines makes a text of several lines fit for a terminal or the log of a CI job.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = plain(l)
	}
	return guard(strings.Join(lines, "\n"))
}

// guard takes the workflow commands out of a finished text: GitHub Actions obeys a line that
// begins with "::" after blanks, and "##[" anywhere in it
// (actions/runner, src/Runner.Common/ActionCommand.cs).
func guard(s string) string {
	return command.ReplaceAllString(strings.ReplaceAll(s, "##[", `#\x23[`), `$1\x3a:`)
}

// command is the beginning of a line that is obeyed. What counts as a blank there is what .NET
// trims.
var command = regexp.MustCompile(`(?m)^([\s\p{Z}]*)::`)

// shown copies a value with every text in it made plain.
func shown[T any](v T) T { return texts(reflect.ValueOf(v), plain).Interface().(T) }

// texts copies a value with every text in its exported parts changed.
func texts(v reflect.Value, change func(string) string) reflect.Value {
	switch v.Kind() {
	case reflect.String:
		out := reflect.New(v.Type()).Elem()
		out.SetString(change(v.String()))
		return out
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(texts(v.Elem(), change))
		return out
	case reflect.Slice:
		if v.IsNil() || textless(v.Type().Elem()) {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(texts(v.Index(i), change))
		}
		return out
	case reflect.Array:
		out := reflect.New(v.Type()).Elem()
		for i := range v.Len() {
			out.Index(i).Set(texts(v.Index(i), change))
		}
		return out
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for k, e := range v.Seq2() {
			out.SetMapIndex(texts(k, change), texts(e, change))
		}
		return out
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v) // with what is not exported
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(texts(v.Field(i), change))
			}
		}
		return out
	}
	return v
}

// textless says of a type that it is a number.
func textless(t reflect.Type) bool {
	return t.Kind() == reflect.Float64 || t.Kind() == reflect.Uint8
}

// cell makes the cell of a table in Markdown, or a part of a line that begins with something else.
// Nothing in it is markup, a link, a mention or the number of an issue, and it is one line.
func cell(s string) string {
	return markup.Replace(strings.TrimSpace(plain(strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ").Replace(s))))
}

// item makes an item of a list, a quotation or a paragraph in Markdown, where a text may begin
// another list, quotation or rule.
func item(s string) string {
	s = cell(s)
	if block.MatchString(s) {
		s = `\` + s
	}
	return numbered.ReplaceAllString(s, `$1\$2$3`)
}

// markup is the punctuation of GitHub's Markdown. Mentions and numbers of issues are recognized after
// backslashes were taken away: only something without width between the two parts helps. An address
// needs its "://" or "www.".
var markup = strings.NewReplacer(`\`, `\\`, "`", "\\`", `*`, `\*`, `_`, `\_`, `[`, `\[`, `<`, `\<`, `|`, `\|`, `~`, `\~`, `&`, `\&`, `$`, `\$`, `#`, `\#&#8203;`,
	`@`, `@&#8203;`, `://`, `\://`, `www.`, `www\.`, `WWW.`, `WWW\.`)

var (
	block    = regexp.MustCompile(`^[-+>=]`)
	numbered = regexp.MustCompile(`^([0-9]+)([.)])(\s|$)`)
)

// inCode writes a name as code in Markdown, where no escape is read.
func inCode(s string) string {
	if s = plain(s); s == "" || strings.Contains(s, "`") {
		return cell(s)
	}
	return "`" + s + "`"
}

// property makes the value of a property of a workflow command, data what it says
// (actions/toolkit, packages/core/src/command.ts).
func property(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(data(plain(s)))
}

func data(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(strings.ReplaceAll(plain(l), "%", "%25"), "##[", `#\x23[`)
	}
	return strings.Join(lines, "%0A")
}

// word makes a part of the name of a benchmark: a "/" or a blank would begin another part.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, s)
}

// field makes a field of a CSV file: no program takes it for a formula, though it may take it for
// a number.
func field(s string) string {
	s = plain(s)
	if _, err := strconv.ParseFloat(s, 64); err != nil && s != "-" && strings.ContainsAny(s[:min(1, len(s))], "=+-@") {
		return "'" + s
	}
	return s
}

// inJSON writes whatever is odd in JSON, and "##[", as an escape of JSON's own: outside of
// strings there is nothing of the kind.
func inJSON(s string) string {
	return escaped(s, func(r rune) string {
		if r > 0xffff {
			r -= 0x10000
			return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// inXML does the same in XML and HTML. What those cannot hold at all was made plain before.
func inXML(s string) string {
	return command.ReplaceAllString(escaped(s, func(r rune) string { return fmt.Sprintf("&#%d;", r) }), "$1&#58;:")
}

// escaped writes odd runes but the end of a line as an escape, and one of "##[".
func escaped(s string, escape func(rune) string) string {
	s = strings.ReplaceAll(s, "##[", "#"+escape('#')+"[")
	strange := func(r rune) bool { return odd(r) && r != '\n' && r != '\t' }
	if !strings.ContainsFunc(s, strange) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if strange(r) {
			b.WriteString(escape(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
