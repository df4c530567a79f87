package dialogue

// What a model is told in words where its vendor's wire has no field for it. All of
// it is read by the model, and said only when it was asked for.
const (
	Brief = "Answer briefly."
	Long  = "Answer at length and in detail."
	JSON  = "Answer with one JSON object and nothing else: no words around it, no code fence."

	// Vendors want a dialogue to begin and end with the user, and nobody to say nothing.
	Begin = "(The assistant speaks first.)"
	GoOn  = "Go on."
	Empty = "(no words)"

	// fromSystem introduces a system message in the middle of a dialogue, where only
	// user and assistant speak.
	fromSystem = "[System message, not from the user]\n"
)

// Hint is what to say of a verbosity.
func Hint(verbosity string) string {
	switch verbosity {
	case "low":
		return Brief
	case "high":
		return Long
	}
	return ""
}

// Speaker says who speaks, where several share a role.
func (t Turn) Speaker() string {
	if t.Name == "" {
		return ""
	}
	return t.Name + ": "
}

// Aside is the text of a system turn for a vendor that knows none in the middle of
// a dialogue.
func (t Turn) Aside() string { return fromSystem + t.Speaker() + Text(t.Content) }

// System takes the turns of the system before the dialogue begins, and returns
// their text and the rest. The text of instructions comes first.
func System(instructions string, turns []Turn) (text string, rest []Turn) {
	for len(turns) > 0 && (turns[0].Role == "system" || turns[0].Role == "developer") {
		instructions = Join(instructions, turns[0].Speaker()+Text(turns[0].Content))
		turns = turns[1:]
	}
	return instructions, turns
}

// Join puts a blank line between two texts, unless one is empty.
func Join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}
