from blog.comments import comment, paragraphs, thread


def test_paragraphs():
    assert paragraphs("one\n\ntwo\n\n\n\n") == "<p>one</p><p>two</p>"


def test_a_text_cannot_write_markup():
    assert paragraphs("a < b & c") == "<p>a &lt; b &amp; c</p>"


def test_an_author_cannot_write_markup():
    shown = comment("<script>alert(1)</script>", "hello")
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def test_nobody():
    assert comment("  ", "hello") == '<article class="comment"><h3>anonymous</h3><p>hello</p></article>'


def test_thread():
    assert thread([]) == "<p>No comments yet.</p>"
    assert thread([("ada", "one"), ("grace", "two")]).count("<article") == 2
