"""Texts that look like posts of channels: several scripts, both directions, emoji. The same random state gives the same
text.
"""

from random import Random

# Each row is one language: who, does what, where, and a remark. Sentences are built by drawing one of each.
_LANGUAGES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (
        ("The ferry Aurora", "A freighter from Bergen", "The pilot boat", "The night train", "The city council"),
        ("berths at", "waits off", "turns back to", "is expected near", "postpones the opening of"),
        ("pier 3", "the east basin", "the old lock", "the fish market", "the new bridge"),
        ("Passengers are asked to wait.", "More at noon.", "No one was hurt.", "Tickets stay valid.", "Photos follow."),
    ),
    (
        ("Паром «Аврора»", "Ночной поезд", "Городской совет", "Ледокол «Север»", "Первая смена"),
        ("прибывает к", "задерживается у", "возвращается к", "ожидается возле", "открывает дорогу к"),
        ("третьему причалу", "старому шлюзу", "рыбному рынку", "новому мосту", "восточной гавани"),
        ("Подробности позже.", "Никто не пострадал.", "Билеты действительны.", "Ждём фотографии.", "Следите за нами!"),
    ),
    (
        ("העבורת", "רכבת הלילה", "מועצת העיר", "ספינת המשא", "הצוות הראשון"),
        ("מגיעה אל", "ממתינה ליד", "חוזרת אל", "צפויה ליד", "פותחת את"),
        ("הרציף השלישי", "השער הישן", "שוק הדגים", "הגשר החדש", "הנמל המזרחי"),
        ("פרטים בהמשך.", "אין נפגעים.", "הכרטיסים בתוקף.", "תמונות בקרוב.", "עקבו אחרינו."),
    ),
    (
        ("العبّارة", "قطار الليل", "مجلس المدينة", "سفينة الشحن", "الوردية الأولى"),
        ("تصل إلى", "تنتظر قرب", "تعود إلى", "يُتوقع وصولها قرب", "تفتح الطريق إلى"),
        ("الرصيف الثالث", "البوابة القديمة", "سوق السمك", "الجسر الجديد", "الميناء الشرقي"),
        ("التفاصيل لاحقًا.", "لا إصابات.", "التذاكر صالحة.", "الصور قريبًا.", "تابعونا."),
    ),
    (
        ("渡轮", "夜班火车", "市议会", "货轮", "早班船"),
        ("抵达", "停靠在", "返回", "即将经过", "开放"),
        ("三号码头", "旧船闸", "鱼市场", "新桥", "东港"),
        ("详情稍后。", "无人受伤。", "票仍有效。", "照片随后。", "敬请关注。"),
    ),
)
_EMOJI = ("⚓", "🌊", "🚢", "❗️", "🔥", "👨‍👩‍👧", "🇳🇴", "✅", "🌧", "📷")


def sentence(chance: Random, language: int | None = None) -> str:
    """Return a sentence, sometimes with a remark."""
    words = _LANGUAGES[chance.randrange(len(_LANGUAGES)) if language is None else language]
    who, does, where, remark = (chance.choice(group) for group in words)
    text = f"{who}{does}{where}。" if words is _LANGUAGES[-1] else f"{who} {does} {where}."
    return f"{text} {remark}" if chance.random() < 0.6 else text


def post(chance: Random) -> str:
    """Return the text of a post: one to six sentences in one language, sometimes with an emoji and a number."""
    # Most posts are short; squaring the draw keeps the long ones rare.
    language = chance.randrange(len(_LANGUAGES))
    lines = [sentence(chance, language) for _ in range(1 + int(chance.random() ** 2 * 6))]
    if chance.random() < 0.4:
        lines[0] = f"{chance.choice(_EMOJI)} {lines[0]}"
    if chance.random() < 0.3:
        lines.append(f"{chance.randrange(1, 24):02}:{chance.randrange(60):02} · {chance.randrange(2, 900)}")
    return (" " if len(lines) < 3 else "\n").join(lines)


def cyrillic(chance: Random, length: int) -> str:
    """Return this number of characters of Russian text."""
    text = ""
    while len(text) < length:
        text += sentence(chance, 1) + " "
    return text[:length]
